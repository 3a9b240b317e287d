# dsv4_folder(NAME [DEPS ...] [TEST_DEPS ...] [TEST_LABELS ...]): one library for a folder of src/ and
# one test program for its *_test.cc and *_test.cu. Sources are globbed: a new file needs no edit here.
#
# A folder without .cc files becomes an INTERFACE library.
function(dsv4_folder name)
  cmake_parse_arguments(ARG "" "" "DEPS;TEST_DEPS;TEST_LABELS" ${ARGN})
  file(GLOB_RECURSE sources CONFIGURE_DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/${name}/*.cc
    ${CMAKE_CURRENT_SOURCE_DIR}/${name}/*.cu)
  list(FILTER sources EXCLUDE REGEX "/${name}/bench/")  # part of dsv4_bench
  set(tests ${sources})
  list(FILTER sources EXCLUDE REGEX "_test\\.c[cu]$")
  list(FILTER tests INCLUDE REGEX "_test\\.c[cu]$")
  if(sources)
    add_library(dsv4_${name} STATIC ${sources})
    target_link_libraries(dsv4_${name} PUBLIC dsv4_options ${ARG_DEPS})
  else()
    add_library(dsv4_${name} INTERFACE)
    target_link_libraries(dsv4_${name} INTERFACE dsv4_options ${ARG_DEPS})
  endif()
  if(DSV4_BUILD_TESTS AND tests)
    set_property(GLOBAL APPEND PROPERTY DSV4_TEST_FOLDERS ${name})
    set_property(GLOBAL PROPERTY DSV4_TESTS_${name} ${tests})
    set_property(GLOBAL PROPERTY DSV4_TEST_DEPS_${name} dsv4_${name} ${ARG_TEST_DEPS})
    set_property(GLOBAL PROPERTY DSV4_TEST_LABELS_${name} ${ARG_TEST_LABELS})
  endif()
endfunction()

# Test programs come last: a *_test.cc may include testing/, which depends on everything.
function(dsv4_add_folder_tests)
  get_property(folders GLOBAL PROPERTY DSV4_TEST_FOLDERS)
  foreach(name IN LISTS folders)
    get_property(tests GLOBAL PROPERTY DSV4_TESTS_${name})
    get_property(deps GLOBAL PROPERTY DSV4_TEST_DEPS_${name})
    get_property(labels GLOBAL PROPERTY DSV4_TEST_LABELS_${name})
    dsv4_test(${name}_test SOURCES ${tests} DEPS ${deps} LABELS ${labels})
  endforeach()
endfunction()

# dsv4_test(NAME SOURCES ... DEPS ... [LABELS ...] [TIMEOUT seconds]): a GoogleTest program, its cases known to ctest.
# Those of TEST_EACH_BACKEND on cuda are labelled gpu as well.
function(dsv4_test name)
  cmake_parse_arguments(ARG "" "TIMEOUT" "SOURCES;DEPS;LABELS" ${ARGN})
  if(NOT ARG_TIMEOUT)
    set(ARG_TIMEOUT 600)
  endif()
  add_executable(${name} ${ARG_SOURCES})
  target_link_libraries(${name} PRIVATE ${ARG_DEPS} GTest::gmock GTest::gtest GTest::gtest_main)
  set(source_dir ${PROJECT_SOURCE_DIR})
  set(discovery DISCOVERY_TIMEOUT 120)
  if(DSV4_PORTABLE)
    set(source_dir .)
    list(APPEND discovery WORKING_DIRECTORY ${PROJECT_SOURCE_DIR})
  endif()
  target_compile_definitions(${name} PRIVATE DSV4_SOURCE_DIR="${source_dir}" DSV4_BINARY_DIR="${PROJECT_BINARY_DIR}")
  # A third less time to compile than with -O3; what they test keeps it.
  target_compile_options(${name} PRIVATE $<$<AND:$<COMPILE_LANGUAGE:CXX>,$<CONFIG:Release>>:-O1>)
  if(DSV4_SANITIZE AND CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
    # GCC's own documentation expects false ones under a sanitizer; GCC 12 finds them in std::regex.
    target_compile_options(${name} PRIVATE -Wno-maybe-uninitialized)
  endif()
  if(DSV4_WITH_CUDA AND NOT "gpu" IN_LIST ARG_LABELS)
    gtest_discover_tests(${name} TEST_FILTER "*/cuda.*" ${discovery}
      PROPERTIES TIMEOUT ${ARG_TIMEOUT} LABELS "${ARG_LABELS};gpu")
    set(without_cuda TEST_FILTER "-*/cuda.*")
  endif()
  gtest_discover_tests(${name} ${without_cuda} ${discovery}
    PROPERTIES TIMEOUT ${ARG_TIMEOUT} LABELS "${ARG_LABELS}")
endfunction()
