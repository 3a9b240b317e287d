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

function(expect_refused name option text)
  configure(code errors ${SOURCE_DIR} ${name} ${option})
  # CMake breaks long lines.
  string(REGEX REPLACE "[ \n]+" " " errors "${errors}")
  if(code EQUAL 0 OR NOT errors MATCHES "${text}")
    message(FATAL_ERROR "${option} gave code ${code} and \"${errors}\", not \"${text}\"")
  endif()
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
expect_refused(cuda -DDSV4_CUDA=perhaps "DSV4_CUDA is \"perhaps\"; it is ON, OFF or AUTO")
expect_refused(sanitize -DDSV4_SANITIZE=adress "DSV4_SANITIZE is \"adress\"; it is empty, or")
