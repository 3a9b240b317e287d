# Which nvcc is taken of several made-up ones, and what is said of those that cannot be used. What a build
# does then is embed_test.cmake's.
#
#   cmake -DSOURCE_DIR=.. -DWORK_DIR=.. -P nvcc_test.cmake
cmake_minimum_required(VERSION 3.25)
include(${SOURCE_DIR}/cmake/Dsv4Nvcc.cmake)

# A toolkit whose nvcc does as BODY says, lines of sh; its arguments go to the file `calls`.
function(toolkit name body)
  file(WRITE ${WORK_DIR}/${name}/bin/nvcc "#!/bin/sh\necho \"$*\" >>'${WORK_DIR}/calls'\n${body}\n")
  file(CHMOD ${WORK_DIR}/${name}/bin/nvcc PERMISSIONS OWNER_READ OWNER_WRITE OWNER_EXECUTE)
endfunction()

function(toolkit_of name release)
  toolkit(${name} "echo 'Cuda compilation tools, release ${release}, V${release}.88'")
endfunction()

# Asks anew, as a first configure does, with the variables that the caller has set.
function(expect nvcc problems)
  unset(DSV4_NVCC CACHE)
  unset(DSV4_NVCC_WORKS CACHE)
  expect_again("${nvcc}" "${problems}")
endfunction()

function(expect_again nvcc problems)
  set(CMAKE_BINARY_DIR ${WORK_DIR}/build)
  dsv4_find_nvcc(got said)
  string(REPLACE "${WORK_DIR}/" "" got "${got}")
  string(REPLACE "${WORK_DIR}/" "" said "${said}")
  if(NOT got STREQUAL nvcc OR NOT said MATCHES "^${problems}$")
    message(SEND_ERROR "took \"${got}\" and said \"${said}\", not \"${nvcc}\" and \"${problems}\"")
  endif()
endfunction()

function(expect_named nvcc problems)
  set(CMAKE_CUDA_COMPILER "${WORK_DIR}/${nvcc}")
  expect("${ARGN}" "${problems}")
endfunction()

file(REMOVE_RECURSE ${WORK_DIR})
foreach(name CUDA_HOME CUDA_PATH CUDACXX CUDAHOSTCXX CUDAFLAGS)
  unset(ENV{${name}})
endforeach()
toolkit_of(old 12.0)
toolkit_of(new 13.0)

# Releases at the boundary, and as numbers.
foreach(release 9.2 12.9 12.10)
  toolkit_of(release ${release})
  expect_named(release/bin/nvcc "  release/bin/nvcc is of CUDA ${release}\n" "")
endforeach()
foreach(release 13.0 13.1 14.0 100.0)
  toolkit_of(release ${release})
  expect_named(release/bin/nvcc "" release/bin/nvcc)
endforeach()

# No release.
toolkit(silent "")
toolkit(failing "echo 'release 13.0,'; exit 1")
foreach(nvcc silent/bin/nvcc failing/bin/nvcc nowhere/bin/nvcc)
  expect_named(${nvcc} "  ${nvcc} --version names no release of CUDA\n" "")
endforeach()

# The search passes over what cannot be used, and says so; a named compiler is the only one asked.
file(CREATE_LINK ${WORK_DIR}/silent ${WORK_DIR}/link SYMBOLIC)  # said once
set(ENV{PATH} "${WORK_DIR}/silent/bin:${WORK_DIR}/link/bin:${WORK_DIR}/new/bin:${WORK_DIR}/old/bin")
expect(new/bin/nvcc "  silent/bin/nvcc [^\n]*\n")
set(ENV{CUDA_HOME} ${WORK_DIR}/old)
expect(new/bin/nvcc "  old/bin/nvcc is of CUDA 12.0\n  silent/bin/nvcc [^\n]*\n")
set(ENV{CUDA_PATH} ${WORK_DIR}/release)
expect(release/bin/nvcc "  old/bin/nvcc is of CUDA 12.0\n")
expect_named(old/bin/nvcc "  old/bin/nvcc is of CUDA 12.0\n" "")
set(ENV{CUDACXX} ${WORK_DIR}/old/bin/nvcc)
expect("" "  old/bin/nvcc is of CUDA 12.0\n")
set(ENV{CUDACXX} ${WORK_DIR}/new/bin/nvcc)
expect(new/bin/nvcc "")

# What was found stays, until it is replaced by something that cannot be used.
unset(ENV{CUDACXX})
expect_again(new/bin/nvcc "")
toolkit_of(new 12.8)
expect_again(release/bin/nvcc "  new/bin/nvcc is of CUDA 12.8\n  old/bin/nvcc is of CUDA 12.0\n")

# A host compiler that nvcc does not take: its words are passed on, and another compiler or a flag helps.
toolkit(picky "case \"$*\" in --version) echo 'release 13.0, V13.0.88';; *'-ccbin g++-12 '* | *-allow*) ;;
*) echo 'error: unsupported GNU version; use another' >&2; exit 1;; esac")
set(refusal "  picky/bin/nvcc cannot build an empty program \\(CMAKE_CUDA_HOST_COMPILER [^\n]*:\n\
    error: unsupported GNU version; use another\n")
expect_named(picky/bin/nvcc "${refusal}" "")
set(CMAKE_CUDA_FLAGS -allow-unsupported-compiler)
expect_named(picky/bin/nvcc "" picky/bin/nvcc)
set(CMAKE_CUDA_FLAGS "")
set(ENV{CUDAHOSTCXX} g++-12)
expect_named(picky/bin/nvcc "" picky/bin/nvcc)
set(CMAKE_CUDA_HOST_COMPILER g++-16)
expect_named(picky/bin/nvcc "${refusal}" "")
set(CMAKE_CUDA_HOST_COMPILER g++-12)
expect_named(picky/bin/nvcc "" picky/bin/nvcc)

# Only the first configure builds the empty program.
file(REMOVE ${WORK_DIR}/calls)
expect_again(picky/bin/nvcc "")
file(READ ${WORK_DIR}/calls calls)
if(NOT calls STREQUAL "--version\n")
  message(SEND_ERROR "a second configure called nvcc with ${calls}")
endif()
