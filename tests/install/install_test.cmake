# Installs a build into a folder of its own, builds the project beside this file against it, by
# find_package and by pkg-config, and runs the results. Offline.
#
#   cmake -DBUILD_DIR=.. -DWORK_DIR=.. -DMODEL_DIR=.. -DVERSION=.. -DCXX=.. -DCC=.. -P install_test.cmake
cmake_minimum_required(VERSION 3.25)

function(run result)
  execute_process(COMMAND ${ARGN} RESULT_VARIABLE code OUTPUT_VARIABLE output ERROR_VARIABLE errors)
  if(NOT code EQUAL 0)
    string(REPLACE ";" " " command "${ARGN}")
    message(FATAL_ERROR "${command}\nexit code ${code}\n${output}\n${errors}")
  endif()
  set(${result} "${output}" PARENT_SCOPE)
endfunction()

function(expect_output text)
  run(output ${ARGN})
  if(NOT output MATCHES "${text}")
    message(FATAL_ERROR "expected \"${text}\", got \"${output}\" of ${ARGN}")
  endif()
endfunction()

file(REMOVE_RECURSE ${WORK_DIR})
# Installed to one place and moved to another: nothing may remember where it was.
run(ignored ${CMAKE_COMMAND} --install ${BUILD_DIR} --prefix ${WORK_DIR}/first)
file(RENAME ${WORK_DIR}/first ${WORK_DIR}/prefix)

set(user_dir ${WORK_DIR}/user)
run(ignored ${CMAKE_COMMAND} -S ${CMAKE_CURRENT_LIST_DIR} -B ${user_dir} -DWANTED_VERSION=${VERSION}
  -DCMAKE_PREFIX_PATH=${WORK_DIR}/prefix -DCMAKE_CXX_COMPILER=${CXX} -DCMAKE_C_COMPILER=${CC})
run(ignored ${CMAKE_COMMAND} --build ${user_dir})
expect_output("Ostholm has 13 bridges\\." ${user_dir}/user_cc ${MODEL_DIR})
expect_output("dsv4 ${VERSION}, vocabulary of 2048" ${user_dir}/user_c ${MODEL_DIR})

# A version that does not exist is refused.
execute_process(COMMAND ${CMAKE_COMMAND} -S ${CMAKE_CURRENT_LIST_DIR} -B ${WORK_DIR}/refused
  -DWANTED_VERSION=99.0 -DCMAKE_PREFIX_PATH=${WORK_DIR}/prefix -DCMAKE_CXX_COMPILER=${CXX} -DCMAKE_C_COMPILER=${CC}
  RESULT_VARIABLE code OUTPUT_QUIET ERROR_QUIET)
if(code EQUAL 0)
  message(FATAL_ERROR "find_package(dsv4 99.0) succeeded")
endif()

file(GLOB_RECURSE pc_files ${WORK_DIR}/prefix/*/dsv4.pc)
if(NOT pc_files)
  message(FATAL_ERROR "dsv4.pc is not installed")
endif()
cmake_path(GET pc_files PARENT_PATH pc_dir)
run(flags ${CMAKE_COMMAND} -E env PKG_CONFIG_PATH=${pc_dir} pkg-config --cflags --libs dsv4)
separate_arguments(flags UNIX_COMMAND "${flags}")
cmake_path(GET pc_dir PARENT_PATH lib_dir)
run(ignored ${CC} ${CMAKE_CURRENT_LIST_DIR}/user.c -o ${WORK_DIR}/user_pc ${flags} -Wl,-rpath,${lib_dir})
expect_output("vocabulary of 2048" ${WORK_DIR}/user_pc ${MODEL_DIR})

# The shells find what completes the program's words.
foreach(script bash-completion/completions/dsv4 zsh/site-functions/_dsv4 fish/vendor_completions.d/dsv4.fish)
  file(READ ${WORK_DIR}/prefix/share/${script} text)
  if(NOT text MATCHES "perplexity")
    message(FATAL_ERROR "${script} does not complete dsv4's commands: ${text}")
  endif()
endforeach()

# Only API symbols leave the library.
file(GLOB library ${lib_dir}/libdsv4.so)
run(symbols nm -DC --defined-only ${library})
string(REGEX MATCHALL "[^\n]*(fmt::|nlohmann|hwy::|Scheduler)[^\n]*" leaked "${symbols}")
list(FILTER leaked EXCLUDE REGEX " dsv4::(Engine|RequestHandle|EngineSession)::")
if(leaked)
  message(FATAL_ERROR "symbols that are not of the API: ${leaked}")
endif()
