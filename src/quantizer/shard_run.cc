#include "quantizer/shard_run.h"

#include <algorithm>
#include <cstring>
#include <span>
#include <utility>

#include "base/error.h"
#include "base/math.h"
#include "numerics/nvfp4.h"
#include "quantizer/stored_scale.h"

namespace dsv4 {
namespace {

// Of the tensor that comes next: enough for the disk to work while this one is encoded.
constexpr std::int64_t kReadAheadBytes = std::int64_t{32} << 20;
// Of a value of a weight: pieces of a copy cut none.
constexpr std::int64_t kLargestWordBytes = 4;

std::int64_t row_bytes(const PlannedMatrix& planned) {
  return data_bytes(planned.matrix.view.format, planned.matrix.view.cols);
}

// Block scales of a matrix that is not encoded; one that is loses its negative scales there.
void require_positive(const std::string& name, std::int64_t begin,
                      std::span<const std::byte> scales) {
  constexpr std::byte kSign{0x80};
  const auto bad = std::find_if(scales.begin(), scales.end(),
                                [](std::byte scale) { return (scale & kSign) != std::byte{0}; });
  require(bad == scales.end(), ErrorCode::kBadCheckpoint,
          "{}: block scale {} is negative, and would be copied as it is, but many engines take "
          "scales for unsigned; --modules with this matrix would move the sign to its codes",
          name, begin + (bad - scales.begin()));
}

// The first word whose magnitude bits are those of infinity or above; -1: none. Two loops, since
// only one without an exit is done with many words at once; signed ones have a maximum in SSE2.
template <class Word>
std::int64_t first_not_finite(std::span<const std::byte> bytes, Word magnitude, Word infinity) {
  const auto word = [&](std::int64_t i) {
    Word value = 0;
    std::memcpy(&value, bytes.data() + i * std::int64_t{sizeof(Word)}, sizeof(Word));
    return static_cast<Word>(value & magnitude);
  };
  const std::int64_t count = std::ssize(bytes) / std::int64_t{sizeof(Word)};
  Word largest = 0;
  for (std::int64_t i = 0; i < count; ++i) largest = std::max(largest, word(i));
  if (largest < infinity) return -1;
  std::int64_t first = 0;
  while (word(first) < infinity) ++first;
  return first;
}

std::int64_t first_not_finite(DType dtype, std::span<const std::byte> bytes) {
  switch (dtype) {
    case DType::kF32:
      return first_not_finite<std::int32_t>(bytes, 0x7FFFFFFF, 0x7F800000);
    case DType::kBF16:
      return first_not_finite<std::int16_t>(bytes, 0x7FFF, 0x7F80);
    case DType::kE4M3:
      return first_not_finite<std::uint8_t>(bytes, 0x7F, 0x7F);
    case DType::kE8M0:
      return first_not_finite<std::uint8_t>(bytes, 0xFF, 0xFF);
    default:
      return -1;  // codes of four bits
  }
}

// Of a tensor that is not encoded, where the encoder would have refused it.
void require_finite_copy(const TensorDeclaration& tensor, std::int64_t begin,
                         std::span<const std::byte> piece) {
  const std::int64_t bad = first_not_finite(tensor.dtype, piece);
  if (bad < 0) return;
  const std::int64_t index = begin / dtype_bytes(tensor.dtype) + bad;
  const int rank = tensor.shape.rank();
  const std::int64_t cols = rank == 0 ? 1 : tensor.shape[rank - 1];
  fail(ErrorCode::kBadCheckpoint,
       "{}: the value in row {}, column {} is NaN or infinite; every weight must be finite",
       tensor.name, index / cols, index % cols);
}

}  // namespace

ShardRun::ShardRun(Backend& backend, ThreadPool& pool, const QuantizePlan& plan,
                   const TensorStore& store, const EncodingOptions& encoding,
                   const MemoryBudget& budget)
    : backend_(backend),
      pool_(pool),
      plan_(plan),
      store_(store),
      encoding_(encoding),
      budget_(budget),
      matrices_of_group_(plan.groups.size()) {
  for (std::size_t i = 0; i < plan.matrices.size(); ++i) {
    matrices_of_group_[static_cast<std::size_t>(plan.matrices[i].group)].push_back(
        static_cast<int>(i));
  }
}

FinishedShard ShardRun::make(const PlannedShard& shard, const std::filesystem::path& out,
                             const std::function<void(std::int64_t)>& advance,
                             const std::function<void()>& before_commit) {
  std::vector<TensorDeclaration> declarations;
  declarations.reserve(shard.tensors.size());
  for (const PlannedTensor& tensor : shard.tensors) declarations.push_back(tensor.declaration);
  FinishedShard finished;
  finished.file_name = shard.file_name;
  ShardWriter writer(out / shard.file_name, std::move(declarations), shard.metadata);
  writer_ = &writer;
  advance_ = &advance;
  finished_ = &finished;
  for (std::size_t i = 0; i < shard.tensors.size(); ++i) {
    const PlannedTensor& tensor = shard.tensors[i];
    if (i + 1 < shard.tensors.size()) read_ahead(shard.tensors[i + 1]);
    switch (tensor.bytes) {
      case PlannedTensor::Bytes::kCopy:
        copy(tensor);
        break;
      case PlannedTensor::Bytes::kCodes:
        encode(tensor);
        break;
      case PlannedTensor::Bytes::kBlockScales:
        writer.append(tensor.declaration.name, std::move(block_scales_));
        break;
      case PlannedTensor::Bytes::kGlobalScale: {
        const auto& name = planned(tensor).matrix.name;
        const auto result =
            std::find_if(finished.matrices.begin(), finished.matrices.end(),
                         [&](const MatrixResult& matrix) { return matrix.name == name; });
        append_scalar(tensor, stored_scale(result->global_scale, plan_.layout, name));
        break;
      }
      case PlannedTensor::Bytes::kScalar:
        append_scalar(tensor, tensor.scalar);
        break;
    }
  }
  const WrittenShard written = writer.finish(before_commit);
  finished.bytes = written.bytes;
  finished.checksum = written.checksum;
  return finished;
}

void ShardRun::copy(const PlannedTensor& tensor) {
  const std::int64_t size = std::ssize(tensor.stored.bytes);
  const std::int64_t step = round_up(budget_.copy_bytes, kLargestWordBytes);
  for (std::int64_t begin = 0; begin < size; begin += step) {
    const std::int64_t count = std::min(step, size - begin);
    std::vector<std::byte> piece = writer_->buffer(count);
    std::memcpy(piece.data(), tensor.stored.bytes.data() + begin, piece.size());
    if (tensor.is_weights) require_finite_copy(tensor.declaration, begin, piece);
    if (tensor.is_nvfp4_scales) require_positive(tensor.declaration.name, begin, piece);
    store_.release(tensor.stored, begin, count);
    writer_->append(tensor.declaration.name, std::move(piece));
    (*advance_)(count);
  }
}

void ShardRun::encode(const PlannedTensor& tensor) {
  const PlannedMatrix& matrix = planned(tensor);
  const std::int64_t rows = matrix.matrix.view.rows, cols = matrix.matrix.view.cols;
  const std::int64_t scale_cols = cols / kNvfp4QuantBlock;
  GroupEncoder& encoder = encoder_of(matrix.group);
  MatrixResult& result = finished_->matrices.emplace_back();
  result.name = matrix.matrix.name;
  result.global_scale = encoder.global_scale();
  block_scales_.resize(static_cast<std::size_t>(rows * scale_cols));
  const std::int64_t chunk_rows = std::max<std::int64_t>(budget_.chunk_values / cols, 1);
  for (std::int64_t begin = 0; begin < rows; begin += chunk_rows) {
    const std::int64_t end = std::min(begin + chunk_rows, rows);
    std::vector<std::byte> codes = writer_->buffer((end - begin) * cols / 2);
    encoder.encode(matrix.member, begin, end, reinterpret_cast<std::uint8_t*>(codes.data()),
                   reinterpret_cast<std::uint8_t*>(block_scales_.data()) + begin * scale_cols,
                   result.tally);
    release_rows(matrix, begin, end);
    writer_->append(tensor.declaration.name, std::move(codes));
    (*advance_)((end - begin) * row_bytes(matrix));
  }
  for (const StoredTensor& sibling : matrix.siblings) store_.release(sibling);
}

void ShardRun::append_scalar(const PlannedTensor& tensor, float value) {
  std::vector<std::byte> bytes(sizeof(value));
  std::memcpy(bytes.data(), &value, sizeof(value));
  writer_->append(tensor.declaration.name, std::move(bytes));
}

void ShardRun::read_ahead(const PlannedTensor& tensor) const {
  const bool is_encoded = tensor.bytes == PlannedTensor::Bytes::kCodes;
  if (!is_encoded && tensor.bytes != PlannedTensor::Bytes::kCopy) return;
  const StoredTensor& stored = is_encoded ? planned(tensor).data : tensor.stored;
  store_.will_need(stored, 0, std::min(kReadAheadBytes, std::ssize(stored.bytes)));
}

// gate, down, up: the group of gate and up comes back after another one.
GroupEncoder& ShardRun::encoder_of(int group) {
  const auto found = std::find_if(encoders_.begin(), encoders_.end(),
                                  [group](const LiveEncoder& live) { return live.group == group; });
  if (found != encoders_.end()) {
    LiveEncoder live = std::move(*found);
    encoders_.erase(found);
    encoders_.push_back(std::move(live));
    return *encoders_.back().encoder;
  }
  if (encoders_.size() == kMaxLiveEncoders) encoders_.pop_front();
  const std::vector<int>& members = matrices_of_group_[static_cast<std::size_t>(group)];
  const auto rows_read = [&](const NamedMatrix& matrix, std::int64_t begin, std::int64_t end) {
    for (const int member : members) {
      const PlannedMatrix& read = plan_.matrices[static_cast<std::size_t>(member)];
      if (read.matrix.name == matrix.name) release_rows(read, begin, end);
    }
  };
  encoders_.push_back({group, std::make_unique<GroupEncoder>(
                                  backend_, pool_, plan_.groups[static_cast<std::size_t>(group)],
                                  encoding_, rows_read)});
  return *encoders_.back().encoder;
}

const PlannedMatrix& ShardRun::planned(const PlannedTensor& tensor) const {
  return plan_.matrices[static_cast<std::size_t>(tensor.matrix)];
}

void ShardRun::release_rows(const PlannedMatrix& matrix, std::int64_t begin,
                            std::int64_t end) const {
  const std::int64_t bytes = row_bytes(matrix);
  store_.release(matrix.data, begin * bytes, (end - begin) * bytes);
}

}  // namespace dsv4
