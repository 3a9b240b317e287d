// shard_run.h: makes one shard of a plan: reads the source, encodes, copies and writes, in pieces.
// Which shards are made, and the journal, are quantize.cc's.
#pragma once

#include <cstdint>
#include <deque>
#include <filesystem>
#include <functional>
#include <memory>
#include <vector>

#include "base/thread_pool.h"
#include "io/tensor_store.h"
#include "ops/backend.h"
#include "quantizer/group_encoder.h"
#include "quantizer/journal.h"
#include "quantizer/memory_budget.h"
#include "quantizer/plan.h"
#include "quantizer/shard_writer.h"

namespace dsv4 {

// Everything that it is given outlives it. One call at a time.
class ShardRun {
 public:
  ShardRun(Backend& backend, ThreadPool& pool, const QuantizePlan& plan, const TensorStore& store,
           const EncodingOptions& encoding, const MemoryBudget& budget);

  // Writes `shard` into `out`. `advance` hears of bytes of the source as they are done, and may
  // throw; `before_commit` is called when all is written, and if it throws nothing appears.
  // Throws Error: those of GroupEncoder and ShardWriter.
  FinishedShard make(const PlannedShard& shard, const std::filesystem::path& out,
                     const std::function<void(std::int64_t bytes)>& advance,
                     const std::function<void()>& before_commit);

 private:
  struct LiveEncoder {
    int group;
    std::unique_ptr<GroupEncoder> encoder;
  };

  void copy(const PlannedTensor& tensor);
  void encode(const PlannedTensor& tensor);
  void append_scalar(const PlannedTensor& tensor, float value);
  void read_ahead(const PlannedTensor& tensor) const;
  GroupEncoder& encoder_of(int group);
  const PlannedMatrix& planned(const PlannedTensor& tensor) const;
  void release_rows(const PlannedMatrix& matrix, std::int64_t begin, std::int64_t end) const;

  Backend& backend_;
  ThreadPool& pool_;
  const QuantizePlan& plan_;
  const TensorStore& store_;
  const EncodingOptions& encoding_;
  const MemoryBudget& budget_;
  std::vector<std::vector<int>> matrices_of_group_;
  std::deque<LiveEncoder> encoders_;  // the one used last at the end

  // Of the shard that is being made.
  ShardWriter* writer_ = nullptr;
  const std::function<void(std::int64_t)>* advance_ = nullptr;
  FinishedShard* finished_ = nullptr;
  std::vector<std::byte> block_scales_;  // of the matrix whose codes came last
};

}  // namespace dsv4
