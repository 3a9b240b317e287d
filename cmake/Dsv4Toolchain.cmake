# Compilers, warnings, sanitizers, ccache and the packages that every target may use.

set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)
# A project around us chooses its own build type; then ours is whatever that is, in our scope only.
if(NOT CMAKE_BUILD_TYPE AND NOT CMAKE_CONFIGURATION_TYPES)
  if(PROJECT_IS_TOP_LEVEL)
    set(CMAKE_BUILD_TYPE Release CACHE STRING "" FORCE)
  else()
    set(CMAKE_BUILD_TYPE Release)
  endif()
endif()

string(REPLACE "," ";" sanitizers "${DSV4_SANITIZE}")
foreach(sanitizer IN LISTS sanitizers)
  if(NOT sanitizer MATCHES "^(address|undefined|thread)$")
    message(FATAL_ERROR "DSV4_SANITIZE is \"${DSV4_SANITIZE}\"; it is empty, or address, undefined or thread, "
      "or several of them joined by commas")
  endif()
endforeach()

find_program(DSV4_CCACHE ccache)
if(DSV4_CCACHE)
  set(CMAKE_CXX_COMPILER_LAUNCHER ${DSV4_CCACHE})
  set(CMAKE_CUDA_COMPILER_LAUNCHER ${DSV4_CCACHE})
endif()

include(Dsv4Nvcc)
string(TOUPPER "${DSV4_CUDA}" cuda)
if(NOT cuda MATCHES "^(AUTO|ON|OFF|TRUE|FALSE|YES|NO|1|0)$")
  message(FATAL_ERROR "DSV4_CUDA is \"${DSV4_CUDA}\"; it is ON, OFF or AUTO")
endif()
set(DSV4_WITH_CUDA OFF)
if(cuda MATCHES "^(ON|TRUE|YES|1)$" OR (cuda STREQUAL "AUTO" AND NOT DSV4_SANITIZE))
  dsv4_find_nvcc(nvcc problems)
  set(remedy "It needs nvcc of CUDA ${DSV4_CUDA_NEEDED} or later. Set CUDA_HOME or CMAKE_CUDA_COMPILER to another "
    "one, or DSV4_CUDA to OFF.")
  if(nvcc)
    message(STATUS "CUDA is built by ${nvcc}")
    if(problems)
      message(STATUS "These nvcc were passed over:\n${problems}")
    endif()
    set(DSV4_WITH_CUDA ON)
  elseif(NOT cuda STREQUAL "AUTO")
    message(FATAL_ERROR "DSV4_CUDA is ${DSV4_CUDA}, but there is no nvcc to build with:\n${problems}" ${remedy})
  elseif(problems)
    message(WARNING "CUDA is left out:\n${problems}" ${remedy})
  endif()
endif()
if(DSV4_WITH_CUDA)
  if(NOT CMAKE_CUDA_COMPILER)
    set(CMAKE_CUDA_COMPILER ${nvcc})
  endif()
  if(NOT CMAKE_CUDA_ARCHITECTURES)
    set(CMAKE_CUDA_ARCHITECTURES 90a-real)
  endif()
  enable_language(CUDA)
  # CMake before 3.26 does not know that nvcc takes -std=c++20.
  if(NOT CMAKE_CUDA20_STANDARD_COMPILE_OPTION)
    set(CMAKE_CUDA20_STANDARD_COMPILE_OPTION "-std=c++20")
    set(CMAKE_CUDA20_EXTENSION_COMPILE_OPTION "-std=c++20")
  endif()
  set(CMAKE_CUDA_STANDARD 20)
  find_package(CUDAToolkit REQUIRED)
endif()

# Properties of every target of ours. Contraction is off: a product and a sum round separately
# unless the source says fma, so that the same source gives the same bits on every host. Params
# structs are filled by designated initialisers that leave out defaults. fmt 9 thinks that nvcc has no
# constexpr, and then does not compile with it. nvcc's 997 would have a backend override every op's
# `compute` or none.
add_library(dsv4_options INTERFACE)
target_include_directories(dsv4_options INTERFACE ${PROJECT_SOURCE_DIR}/include ${PROJECT_SOURCE_DIR}/src)
target_compile_features(dsv4_options INTERFACE cxx_std_20)  # of programs that link single layers, too
target_compile_options(dsv4_options INTERFACE
  $<$<COMPILE_LANGUAGE:CXX>:-Wall;-Wextra;-Wno-missing-field-initializers;-Wshadow;-Wnon-virtual-dtor;-ffp-contract=off>
  $<$<AND:$<COMPILE_LANGUAGE:CXX>,$<BOOL:${DSV4_WERROR}>>:-Werror>
  $<$<COMPILE_LANGUAGE:CUDA>:-DFMT_USE_CONSTEXPR=1;--expt-relaxed-constexpr;-fmad=false;-diag-suppress=997;-Xcompiler=-Wall,-Wextra,-Wno-missing-field-initializers,-ffp-contract=off>
  $<$<AND:$<COMPILE_LANGUAGE:CUDA>,$<BOOL:${DSV4_WERROR}>>:-Werror=all-warnings;-Xcompiler=-Werror>)
if(DSV4_SANITIZE)
  target_compile_options(dsv4_options INTERFACE -fsanitize=${DSV4_SANITIZE} -fno-omit-frame-pointer -g1)
  target_link_options(dsv4_options INTERFACE -fsanitize=${DSV4_SANITIZE})
  if(DSV4_SANITIZE MATCHES "undefined")
    target_compile_options(dsv4_options INTERFACE -fno-sanitize-recover=all)
  endif()
endif()

if(DSV4_PORTABLE)
  # nvcc's 20208: long double of fmt's own sources, in functions that no kernel calls. GCC 13 sees those
  # sources copy behind a buffer of four bytes, which they do not. Compressed, the expert GEMMs' kernels
  # take a sixteenth.
  target_compile_options(dsv4_options INTERFACE
    $<$<COMPILE_LANGUAGE:CXX>:-ffunction-sections;-fdata-sections>
    $<$<COMPILE_LANGUAGE:CUDA>:-diag-suppress=20208;-compress-mode=size>)
  if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
    target_compile_options(dsv4_options INTERFACE
      $<$<COMPILE_LANGUAGE:CXX>:-Wno-array-bounds;-Wno-stringop-overflow>
      $<$<COMPILE_LANGUAGE:CUDA>:-Xcompiler=-Wno-array-bounds,-Wno-stringop-overflow>)
  endif()
  target_link_options(dsv4_options INTERFACE -static-libstdc++ -static-libgcc LINKER:--gc-sections)
endif()

if(DSV4_FUZZ)
  if(NOT CMAKE_CXX_COMPILER_ID MATCHES "Clang")
    message(FATAL_ERROR "DSV4_FUZZ needs clang, whose runtime holds libFuzzer; the compiler is ${CMAKE_CXX_COMPILER}")
  endif()
  target_compile_options(dsv4_options INTERFACE -fsanitize=fuzzer-no-link)
endif()

find_package(fmt REQUIRED)
set(DSV4_FMT fmt::fmt)
if(DSV4_PORTABLE)
  set(DSV4_FMT fmt::fmt-header-only)
endif()
find_package(nlohmann_json REQUIRED)
find_package(CLI11 REQUIRED)
find_package(spdlog REQUIRED)
find_package(Threads REQUIRED)
find_package(PkgConfig REQUIRED)
pkg_check_modules(PCRE2 REQUIRED IMPORTED_TARGET libpcre2-8)
pkg_check_modules(HWY REQUIRED IMPORTED_TARGET libhwy)
pkg_check_modules(EDIT REQUIRED IMPORTED_TARGET libedit)
pkg_check_modules(XXHASH REQUIRED IMPORTED_TARGET libxxhash)
