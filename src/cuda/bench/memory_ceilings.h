// memory_ceilings.h: the part of ceilings.h that needs kernels of its own.
#pragma once

#include "cuda/bench/ceilings.h"
#include "cuda/bench/timer.h"
#include "ops/backend.h"

namespace dsv4::cuda {

// What a call of `amount` bytes or operations reached.
inline Ceiling ceiling_of(double amount, const CallTimes& times) {
  return {amount / times.seconds, times.sm_hertz, amount / times.sustained_seconds,
          times.sustained_sm_hertz};
}

struct MemoryCeilings {
  Ceiling read, copy;
};
MemoryCeilings measure_memory(Backend& backend);

}  // namespace dsv4::cuda
