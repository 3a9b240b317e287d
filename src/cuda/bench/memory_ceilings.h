// memory_ceilings.h: the part of ceilings.h that needs kernels of its own.
#pragma once

#include "ops/backend.h"

namespace dsv4::cuda {

struct MemoryCeilings {
  double read_bytes_per_second = 0;
  double copy_bytes_per_second = 0;
};
MemoryCeilings measure_memory(Backend& backend);

}  // namespace dsv4::cuda
