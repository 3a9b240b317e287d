// layers_user.cc: a program's file that uses layers of dsv4 alone. Compiled, never linked.
#include "cpu/cpu_backend.h"

std::int64_t workspace_of(const dsv4::SamplingParams& params) {
  return dsv4::CpuBackend({.num_threads = 1}).workspace_bytes(params);
}
