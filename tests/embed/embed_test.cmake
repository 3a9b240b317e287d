# What CMake does with dsv4 inside another project, and with options that mean nothing.
#
#   cmake -DSOURCE_DIR=.. -DWORK_DIR=.. -DCXX=.. -P embed_test.cmake
cmake_minimum_required(VERSION 3.25)

function(configure code errors source name)
  execute_process(COMMAND ${CMAKE_COMMAND} -S ${source} -B ${WORK_DIR}/${name} -DCMAKE_CXX_COMPILER=${CXX} ${ARGN}
    RESULT_VARIABLE result OUTPUT_QUIET ERROR_VARIABLE stderr)
  set(${code} ${result} PARENT_SCOPE)
  set(${errors} "${stderr}" PARENT_SCOPE)
endfunction()

function(expect_said text errors)
  # CMake breaks long lines.
  string(REGEX REPLACE "[ \n]+" " " errors "${errors}")
  if(NOT errors MATCHES "${text}")
    message(FATAL_ERROR "CMake said \"${errors}\", not \"${text}\"")
  endif()
endfunction()

function(expect_refused name text)
  configure(code errors ${SOURCE_DIR} ${name} ${ARGN})
  if(code EQUAL 0)
    message(FATAL_ERROR "CMake took ${ARGN}")
  endif()
  expect_said("${text}" "${errors}")
endfunction()

file(REMOVE_RECURSE ${WORK_DIR})
configure(code errors ${CMAKE_CURRENT_LIST_DIR} host -G Ninja -DDSV4_DIR=${SOURCE_DIR} -DDSV4_CUDA=off)
if(NOT code EQUAL 0)
  message(FATAL_ERROR "${errors}")
endif()
execute_process(COMMAND ${CMAKE_COMMAND} --build ${WORK_DIR}/host --target CMakeFiles/layers_user.dir/layers_user.cc.o
  RESULT_VARIABLE code OUTPUT_VARIABLE output ERROR_VARIABLE output)
if(NOT code EQUAL 0)
  message(FATAL_ERROR "${output}")
endif()

# An nvcc that is too old: AUTO does without, ON does not. nvcc_test.cmake has all that can be wrong with one.
set(old_nvcc ${WORK_DIR}/cuda-12/bin/nvcc)
file(WRITE ${old_nvcc} "#!/bin/sh\necho 'Cuda compilation tools, release 12.0, V12.0.140'\n")
file(CHMOD ${old_nvcc} PERMISSIONS OWNER_READ OWNER_WRITE OWNER_EXECUTE)
set(too_old "[^ ]*cuda-12/bin/nvcc is of CUDA 12.0 It needs nvcc of CUDA 13.0 or later. Set CUDA_HOME or \
CMAKE_CUDA_COMPILER to another one, or DSV4_CUDA to OFF.")
configure(code errors ${CMAKE_CURRENT_LIST_DIR} host -DDSV4_CUDA=auto -DCMAKE_CUDA_COMPILER=${old_nvcc})
if(NOT code EQUAL 0)
  message(FATAL_ERROR "${errors}")
endif()
expect_said("CUDA is left out: ${too_old}" "${errors}")
expect_refused(cuda_on "DSV4_CUDA is on, but there is no nvcc to build with: ${too_old}"
  -DDSV4_CUDA=on -DCMAKE_CUDA_COMPILER=${old_nvcc})

expect_refused(cuda "DSV4_CUDA is \"perhaps\"; it is ON, OFF or AUTO" -DDSV4_CUDA=perhaps)
expect_refused(sanitize "DSV4_SANITIZE is \"adress\"; it is empty, or" -DDSV4_SANITIZE=adress)
