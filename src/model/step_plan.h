// step_plan.h: a step's tokens and where their rows go, as the arrays on the device that the ops
// read.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <vector>

#include "kv/handle.h"
#include "ops/backend.h"

namespace dsv4 {

// Consecutive tokens of one sequence in a step.
struct StepSequence {
  SequenceCache* cache = nullptr;
  std::int64_t first_position = 0;
  std::int64_t num_tokens = 0;
};

// Pointers are device memory owned by the StepArrays that made the plan.
struct StepPlan {
  std::int64_t num_tokens = 0;
  int num_sequences = 0;
  const std::int32_t* token_ids = nullptr;      // [tokens]
  const std::int32_t* positions = nullptr;      // [tokens]
  const std::int32_t* sequences = nullptr;      // [tokens]
  const std::int32_t* token_offsets = nullptr;  // [sequences + 1]
  const std::int32_t* all_tokens = nullptr;     // {0, num_tokens}: the tokens as one range
  const std::int32_t* state_idx = nullptr;      // [sequences]; also the page of each ring
  const std::int64_t* ring_slots = nullptr;     // [tokens]
  const std::int32_t* logits_rows = nullptr;    // [num_logits], step rows whose logits are wanted
  std::int64_t num_logits = 0;

  // Of a compress ratio: where the rows of closed groups go, and the tables to find all rows.
  struct Ratio {
    const std::int64_t* slots = nullptr;          // [tokens], -1: the token closes no group
    const std::int32_t* row_positions = nullptr;  // [tokens], RoPE position of that row, or -1
    const std::int32_t* pages = nullptr;          // [sequences, pages_stride]
    std::int64_t pages_stride = 0;
    std::int64_t max_visible_rows = 0;  // of any token in the step
  };
  std::map<int, Ratio> ratios;
};

// Builds plans; its device memory is reused, so a plan is valid until the next one is built.
class StepArrays {
 public:
  explicit StepArrays(Backend& backend) : backend_(backend) {}

  // Every sequence has reserved room for its tokens. Uploads on the default stream and waits.
  StepPlan build(const CacheSchema& schema, std::span<const std::int32_t> token_ids,
                 std::span<const StepSequence> sequences,
                 std::span<const std::int32_t> logits_rows);

 private:
  template <class T>
  std::int64_t append(std::span<const T> values);
  template <class T>
  const T* at(std::int64_t offset) const;

  Backend& backend_;
  std::vector<std::byte> staging_;
  DeviceBuffer memory_;
};

}  // namespace dsv4
