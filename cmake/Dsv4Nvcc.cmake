# Which nvcc builds the CUDA sources: one that is new enough and works with the host compiler. Whether
# CUDA is wanted at all is Dsv4Toolchain's business.

set(DSV4_CUDA_NEEDED 13.0)

# Sets OUT to what keeps NVCC from being used, or to nothing.
function(dsv4_nvcc_problem out nvcc)
  set(${out} "" PARENT_SCOPE)
  execute_process(COMMAND ${nvcc} --version RESULT_VARIABLE code OUTPUT_VARIABLE text ERROR_QUIET TIMEOUT 60)
  if(NOT code STREQUAL 0 OR NOT text MATCHES "release ([0-9]+\\.[0-9]+)")
    set(${out} "${nvcc} --version names no release of CUDA" PARENT_SCOPE)
    return()
  endif()
  set(release ${CMAKE_MATCH_1})
  if(release VERSION_LESS DSV4_CUDA_NEEDED)
    set(${out} "${nvcc} is of CUDA ${release}" PARENT_SCOPE)
    return()
  endif()

  # A program, by the host compiler and the flags that enable_language() will take: where that fails, it
  # does not let us go on without CUDA.
  set(host_compiler ${CMAKE_CUDA_HOST_COMPILER} $ENV{CUDAHOSTCXX})
  separate_arguments(arguments UNIX_COMMAND "${CMAKE_CUDA_FLAGS} $ENV{CUDAFLAGS}")
  if(host_compiler)
    list(GET host_compiler 0 host_compiler)
    list(PREPEND arguments -ccbin ${host_compiler})
  endif()
  set(trial ${nvcc} ${release} ${arguments})
  if("${DSV4_NVCC_WORKS}" STREQUAL "${trial}")
    return()
  endif()
  set(folder ${CMAKE_BINARY_DIR}/CMakeFiles/dsv4_nvcc)
  file(WRITE ${folder}/empty.cu "int main() { return 0; }\n")
  execute_process(COMMAND ${nvcc} -std=c++20 ${arguments} -o empty empty.cu WORKING_DIRECTORY ${folder}
    RESULT_VARIABLE code OUTPUT_VARIABLE text ERROR_VARIABLE text TIMEOUT 300)
  if(NOT code STREQUAL 0)
    string(STRIP "${text}" text)
    string(SUBSTRING "${text}" 0 1000 text)
    string(REPLACE "\n" "\n    " text "${text}")
    set(${out} "${nvcc} cannot build an empty program (CMAKE_CUDA_HOST_COMPILER sets its host compiler):\n\
    ${text}" PARENT_SCOPE)
    return()
  endif()
  set(DSV4_NVCC_WORKS "${trial}" CACHE INTERNAL "The nvcc that has built a program, its release and arguments")
endfunction()

# find_program()'s judge: turns an nvcc down for its problem, and keeps that, a line each.
function(dsv4_judge_nvcc accepted nvcc)
  file(REAL_PATH ${nvcc} file)
  get_property(judged GLOBAL PROPERTY DSV4_NVCC_JUDGED)
  if(file IN_LIST judged)  # again, where /bin is /usr/bin
    set(${accepted} FALSE PARENT_SCOPE)
    return()
  endif()
  set_property(GLOBAL APPEND PROPERTY DSV4_NVCC_JUDGED ${file})
  dsv4_nvcc_problem(problem ${nvcc})
  if(problem)
    set_property(GLOBAL APPEND_STRING PROPERTY DSV4_NVCC_PROBLEMS "  ${problem}\n")
    set(${accepted} FALSE PARENT_SCOPE)
  endif()
endfunction()

# Sets NVCC to the compiler to use, or to nothing, and PROBLEMS to a line for each that was found and
# cannot be used. A named one (CMAKE_CUDA_COMPILER, or CUDACXX in the environment) is the only one asked;
# otherwise the first good one is taken of CUDA_HOME, CUDA_PATH, the PATH and /usr/local/cuda, for good
# (DSV4_NVCC in the cache) or until it has a problem.
function(dsv4_find_nvcc nvcc problems)
  set_property(GLOBAL PROPERTY DSV4_NVCC_JUDGED)
  set_property(GLOBAL PROPERTY DSV4_NVCC_PROBLEMS "")
  set(named ${CMAKE_CUDA_COMPILER})
  if(NOT named AND NOT DSV4_NVCC)
    get_filename_component(named "$ENV{CUDACXX}" PROGRAM)
  endif()
  if(named)
    set(DSV4_NVCC ${named} CACHE FILEPATH "The nvcc that builds the CUDA sources" FORCE)
  endif()
  if(DSV4_NVCC)
    set(good TRUE)
    dsv4_judge_nvcc(good ${DSV4_NVCC})
    if(NOT good)
      unset(DSV4_NVCC CACHE)
    endif()
  endif()
  if(NOT named)
    find_program(DSV4_NVCC nvcc HINTS ENV CUDA_HOME ENV CUDA_PATH PATHS /usr/local/cuda PATH_SUFFIXES bin
      VALIDATOR dsv4_judge_nvcc DOC "The nvcc that builds the CUDA sources")
  endif()
  set(${nvcc} "" PARENT_SCOPE)
  if(DSV4_NVCC)
    set(${nvcc} ${DSV4_NVCC} PARENT_SCOPE)
  endif()
  get_property(lines GLOBAL PROPERTY DSV4_NVCC_PROBLEMS)
  set(${problems} "${lines}" PARENT_SCOPE)
endfunction()
