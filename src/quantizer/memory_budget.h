// memory_budget.h: how much of a source is handled at a time, so that a quantisation stays within
// the memory that it may have.
#pragma once

#include <cstdint>

#include "io/tensor_store.h"
#include "quantizer/plan.h"

namespace dsv4 {

struct MemoryBudget {
  std::int64_t copy_bytes = 0;    // of a tensor that is copied
  std::int64_t chunk_values = 0;  // of a matrix that is encoded; a row is taken in any case
};

// Encoders that are kept: of gate and up, while down stands between them.
inline constexpr int kMaxLiveEncoders = 2;

// The least resident memory with which `store` can be bound and planned: headers, names, the
// parameters that are checked, and the tensors that are copied since the file does not align them.
// Known before any of that is done.
std::int64_t min_binding_bytes(const TensorStore& store);

// The least with which `plan` can run: the same, encoders, and of the largest matrix the block
// scales and a row.
std::int64_t min_memory_bytes(const QuantizePlan& plan, const TensorStore& store);

// Throws Error kBadRequest, naming the minimum, when `max_bytes` is below it.
void require_memory(std::int64_t min_bytes, std::int64_t max_bytes);

// max_bytes is at least min_memory_bytes.
MemoryBudget make_budget(const QuantizePlan& plan, const TensorStore& store,
                         std::int64_t max_bytes);

}  // namespace dsv4
