# Installs a build into a folder of its own, builds the project beside this file against it, by
# find_package and by pkg-config, and runs the results. Offline.
#
#   cmake -DBUILD_DIR=.. -DWORK_DIR=.. -DMODEL_DIR=.. -DVERSION=.. -DCXX=.. -DCC=.. -DSANITIZE=.. -DPAGE=..
#     -P install_test.cmake
#
# PAGE is the documentation whose example project is built and run, too. SANITIZE is how the library
# was built: a program that uses a sanitized library must be linked with the same sanitizer.
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

# The code block of `fence` in the page that begins with `first_words`, as a file.
function(extract_example fence first_words file)
  string(FIND "${page}" "```${fence}\n${first_words}" begin)
  if(begin EQUAL -1)
    message(FATAL_ERROR "${PAGE} has no block \"${first_words}\"")
  endif()
  string(SUBSTRING "${page}" ${begin} -1 block)
  string(LENGTH "```${fence}\n" fence_length)
  string(SUBSTRING "${block}" ${fence_length} -1 block)
  string(FIND "${block}" "```" end)
  string(SUBSTRING "${block}" 0 ${end} block)
  file(WRITE ${file} "${block}")
endfunction()

# Configures and builds a project against the installation.
function(build_project source_dir build_dir)
  run(ignored ${CMAKE_COMMAND} -S ${source_dir} -B ${build_dir} -DCMAKE_PREFIX_PATH=${WORK_DIR}/prefix
    -DCMAKE_CXX_COMPILER=${CXX} -DCMAKE_C_COMPILER=${CC} "-DCMAKE_C_FLAGS=${user_flags}"
    "-DCMAKE_CXX_FLAGS=${user_flags}" ${ARGN})
  run(ignored ${CMAKE_COMMAND} --build ${build_dir})
endfunction()

set(sanitizer_flag "")
if(SANITIZE)
  set(sanitizer_flag -fsanitize=${SANITIZE})
endif()
# Users' projects warn, and the headers and the examples are to be clean there, too.
set(user_flags "-Wall -Wextra -Werror ${sanitizer_flag}")

file(REMOVE_RECURSE ${WORK_DIR})
# Installed to one place and moved to another: nothing may remember where it was.
run(ignored ${CMAKE_COMMAND} --install ${BUILD_DIR} --prefix ${WORK_DIR}/first)
file(RENAME ${WORK_DIR}/first ${WORK_DIR}/prefix)

set(user_dir ${WORK_DIR}/user)
build_project(${CMAKE_CURRENT_LIST_DIR} ${user_dir} -DWANTED_VERSION=${VERSION})
expect_output("Ostholm has 13 bridges\\." ${user_dir}/user_cc ${MODEL_DIR})
expect_output("dsv4 ${VERSION}, vocabulary of 2048" ${user_dir}/user_c ${MODEL_DIR})

file(READ ${PAGE} page)
set(example_dir ${WORK_DIR}/example)
extract_example(cmake "# CMakeLists.txt" ${example_dir}/CMakeLists.txt)
extract_example(cpp "// example.cc" ${example_dir}/example.cc)
extract_example(c "/* example.c" ${example_dir}/example.c)
build_project(${example_dir} ${example_dir}/build)
expect_output("^Ostholm has 13 bridges\\.\n$" ${example_dir}/build/example_cc ${MODEL_DIR})
expect_output("^Ostholm has 13 bridges\\.\n$" ${example_dir}/build/example_c ${MODEL_DIR})

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
run(ignored ${CC} ${CMAKE_CURRENT_LIST_DIR}/user.c -o ${WORK_DIR}/user_pc ${sanitizer_flag} ${flags} -Wl,-rpath,${lib_dir})
expect_output("vocabulary of 2048" ${WORK_DIR}/user_pc ${MODEL_DIR})
run(ignored ${CXX} -std=c++20 ${CMAKE_CURRENT_LIST_DIR}/user.cc -o ${WORK_DIR}/user_pc_cc ${sanitizer_flag} ${flags} -Wl,-rpath,${lib_dir})
expect_output("Ostholm has 13 bridges" ${WORK_DIR}/user_pc_cc ${MODEL_DIR})

# The shells find what completes the program's words.
foreach(script bash-completion/completions/dsv4 zsh/site-functions/_dsv4 fish/vendor_completions.d/dsv4.fish)
  file(READ ${WORK_DIR}/prefix/share/${script} text)
  if(NOT text MATCHES "perplexity")
    message(FATAL_ERROR "${script} does not complete dsv4's commands: ${text}")
  endif()
endforeach()

# The licence asks for a copy of itself.
if(NOT EXISTS ${WORK_DIR}/prefix/share/doc/dsv4/LICENSE)
  message(FATAL_ERROR "LICENSE is not installed")
endif()

# Only API symbols leave the library.
file(GLOB library ${lib_dir}/libdsv4.so)
run(symbols nm -DC --defined-only ${library})
string(REGEX MATCHALL "[^\n]*(fmt::|nlohmann|hwy::|Scheduler)[^\n]*" leaked "${symbols}")
list(FILTER leaked EXCLUDE REGEX " dsv4::(Engine|RequestHandle|Session)::")
if(leaked)
  message(FATAL_ERROR "symbols that are not of the API: ${leaked}")
endif()
