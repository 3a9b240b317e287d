#include "quantizer/memory_budget.h"

#include <algorithm>

#include "base/error.h"
#include "numerics/nvfp4.h"
#include "quantizer/shard_writer.h"

namespace dsv4 {
namespace {

constexpr std::int64_t kMiB = std::int64_t{1} << 20;

// The program, its libraries, the threads' stacks and what the allocator keeps.
constexpr std::int64_t kProcessBytes = 96 * kMiB;
// Header entry, names, index, plan, journal: with a name of 45 bytes about 1.3 KiB.
constexpr std::int64_t kBytesPerTensor = 2048;
// Between two releases while binding: a hash table, or half of 256 tensors that map 2 MiB each.
constexpr std::int64_t kBindingBytes = 256 * kMiB;
// Group encoder: about 5 bytes a value of a chunk (group_encoder.h).
constexpr std::int64_t kEncoderBytesPerValue = 5;
// Pieces between an encoder and the disk.
constexpr std::int64_t kPieces = ShardWriter::kMaxQueued + 2;

// More at a time is not faster.
constexpr std::int64_t kMaxCopyBytes = 4 * kMiB, kMinCopyBytes = kMiB / 16;
constexpr std::int64_t kMaxChunkValues = 4 * kMiB;
// Of a value in flight: up to 4 bytes of the source and half a byte in each piece.
constexpr std::int64_t kBytesPerValue = 4 + (kPieces + 1) / 2;

struct Largest {
  std::int64_t cols = 0, block_scales = 0;
};

Largest largest_matrix(const QuantizePlan& plan) {
  Largest largest;
  for (const PlannedMatrix& planned : plan.matrices) {
    const MatrixView& view = planned.matrix.view;
    largest.cols = std::max(largest.cols, view.cols);
    largest.block_scales = std::max(largest.block_scales, view.rows * view.cols / kNvfp4QuantBlock);
  }
  return largest;
}

// Headers, names and owned copies, which stay.
std::int64_t kept_bytes(const TensorStore& store) {
  std::int64_t bytes = kProcessBytes + kBytesPerTensor * std::ssize(store.tensors());
  for (const StoredTensor& tensor : store.tensors()) {
    const DType dtype = tensor.info->dtype;
    if (dtype == DType::kI64) bytes += tensor.info->size_bytes() / 2;  // a hash table, as I32
    if (dtype != DType::kI64 && !tensor.aligned()) bytes += tensor.info->size_bytes();
  }
  return bytes;
}

}  // namespace

std::int64_t min_binding_bytes(const TensorStore& store) {
  return kept_bytes(store) + std::min(store.payload_bytes(), kBindingBytes);
}

// The block scales of a matrix are there up to four times: of the source, those being filled, and
// of this matrix and the one before on their way to the disk.
std::int64_t min_memory_bytes(const QuantizePlan& plan, const TensorStore& store) {
  const Largest largest = largest_matrix(plan);
  const std::int64_t encoders =
      kMaxLiveEncoders * kEncoderBytesPerValue * std::max(kEncoderChunkValues, largest.cols);
  const std::int64_t running = kept_bytes(store) + encoders + 4 * largest.block_scales +
                               kBytesPerValue * largest.cols + kPieces * kMinCopyBytes;
  return std::max(running, min_binding_bytes(store));
}

void require_memory(std::int64_t min_bytes, std::int64_t max_bytes) {
  require(max_bytes >= kMiB || max_bytes >= min_bytes, ErrorCode::kBadRequest,
          "max-memory is {} bytes; this checkpoint needs at least {} MiB, and a number without MiB "
          "or GiB is bytes",
          max_bytes, (min_bytes + kMiB - 1) / kMiB);
  require(max_bytes >= min_bytes, ErrorCode::kBadRequest,
          "max-memory is {} MiB; this checkpoint needs at least {} MiB", max_bytes / kMiB,
          (min_bytes + kMiB - 1) / kMiB);
}

MemoryBudget make_budget(const QuantizePlan& plan, const TensorStore& store,
                         std::int64_t max_bytes) {
  const std::int64_t spare = max_bytes - min_memory_bytes(plan, store);
  return {std::clamp(spare / kPieces, kMinCopyBytes, kMaxCopyBytes),
          std::clamp(spare / kBytesPerValue, std::int64_t{1}, kMaxChunkValues)};
}

}  // namespace dsv4
