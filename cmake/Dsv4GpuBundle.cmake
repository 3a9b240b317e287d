# The GPU's tests and benchmarks as a folder that runs on another machine: target gpu_bundle builds it,
# `cmake --install --component gpu-bundle` fills it (make gpu-bundle does both).
#
# Shared libraries are copied beside the programs, but for those that the machine has: glibc, CUDA's, and
# libstdc++, which the programs carry and only the copied libraries look for.
set(programs dsv4_bench ops_test cuda_test)
add_custom_target(gpu_bundle DEPENDS ${programs})
set_target_properties(${programs} PROPERTIES INSTALL_RPATH "$ORIGIN")
install(TARGETS ${programs}
  RUNTIME_DEPENDENCIES
    PRE_EXCLUDE_REGEXES "^ld-linux" "^lib(c|m|dl|rt|pthread|stdc\\+\\+|gcc_s)\\.so" "^lib(cuda|cublas|nv)"
  RUNTIME DESTINATION . COMPONENT gpu-bundle EXCLUDE_FROM_ALL
  LIBRARY DESTINATION . COMPONENT gpu-bundle EXCLUDE_FROM_ALL)
install(PROGRAMS ${PROJECT_SOURCE_DIR}/tools/gpu_check.sh ${PROJECT_SOURCE_DIR}/tools/gpu_peers.py
  DESTINATION . COMPONENT gpu-bundle EXCLUDE_FROM_ALL)
# What ops_test reads.
install(FILES ${PROJECT_SOURCE_DIR}/tests/data/golden/codecs/nvfp4.safetensors
  DESTINATION tests/data/golden/codecs COMPONENT gpu-bundle EXCLUDE_FROM_ALL)
