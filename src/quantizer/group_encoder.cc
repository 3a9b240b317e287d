#include "quantizer/group_encoder.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "base/check.h"
#include "base/error.h"
#include "base/math.h"
#include "numerics/amax.h"
#include "numerics/nvfp4.h"
#include "quantizer/fp4_scan.h"
#include "quantizer/matrix_rows.h"
#include "quantizer/row_encoder.h"
#include "quantizer/stored_scale.h"

namespace dsv4 {
namespace {

// A cast does so little for a value that threads want more of them between two meetings.
constexpr std::int64_t kCastChunkValues = 8 * kEncoderChunkValues;
constexpr std::int64_t kValuesAtATime = 16384;  // of one thread

void check_group(const MatrixGroup& group) {
  DSV4_CHECK(!group.members.empty());
  for (const NamedMatrix& matrix : group.members) {
    const MatrixView& view = matrix.view;
    DSV4_CHECK(view.cols == group.members[0].view.cols, "{} has other columns than {}", matrix.name,
               group.members[0].name);
    DSV4_CHECK(view.global_scale_stride == 0, "{} has a global scale a row", matrix.name);
    require_whole_blocks(matrix);
  }
}

// E4M3 numbers are multiples of 2^-9 with four bits, and BF16 reaches down to 2^-133: under powers
// of two from 2^-124 on each is a BF16, which the ops take faster than FP32.
bool decodes_to_bf16(const MatrixView& rows) {
  constexpr std::uint8_t kSmallestScale = 127 - 124;
  if (rows.format != Format::kE4m3 || rows.scale_dtype != DType::kE8M0) return false;
  const std::int64_t scale_cols = ceil_div(rows.cols, rows.block_cols);
  for (std::int64_t row = 0; row < ceil_div(rows.rows, rows.block_rows); ++row) {
    const auto* scales =
        static_cast<const std::uint8_t*>(rows.block_scales) + row * rows.scale_stride;
    if (*std::min_element(scales, scales + scale_cols) < kSmallestScale) return false;
  }
  return true;
}

}  // namespace

void require_whole_blocks(const NamedMatrix& matrix) {
  require(matrix.view.cols % kNvfp4QuantBlock == 0, ErrorCode::kUnsupported,
          "matrix {} has {} columns; NVFP4 needs a multiple of {}", matrix.name, matrix.view.cols,
          kNvfp4QuantBlock);
}

struct GroupEncoder::Impl {
  Impl(Backend& backend_, ThreadPool& pool_, MatrixGroup group_, const EncodingOptions& options_)
      : backend(backend_), pool(pool_), group(std::move(group_)), options(options_) {}

  // Calls body(row, thread_idx) for rows [0, rows) on the pool.
  template <class Body>
  void for_each_row(std::int64_t rows, const Body& body);
  template <class Params>
  void run(const Params& params);
  float amax_of(const MatrixView& rows);
  MatrixView decode(const MatrixView& rows);
  float global_scale_of_values(const RowsReadCallback& rows_read);
  void start_rows(std::int64_t rows, const ErrorTally& tally);
  void finish_rows(const NamedMatrix& matrix, std::int64_t begin, ErrorTally& tally);
  void cast(int member_idx, std::int64_t begin, std::int64_t end, std::uint8_t* codes,
            std::uint8_t* block_scales, ErrorTally& tally);
  void encode_values(const NamedMatrix& matrix, std::int64_t begin, std::int64_t end,
                     std::uint8_t* codes, std::uint8_t* block_scales, ErrorTally& tally);
  void measure(const MatrixView& source, const std::uint8_t* codes,
               const std::uint8_t* block_scales);

  Backend& backend;
  ThreadPool& pool;
  const MatrixGroup group;
  const EncodingOptions options;
  float global_scale = 0;
  std::optional<ErrorMeter> meter;  // knows the global scale that the result decodes with
  std::vector<Fp4Caster> casters;   // of the members; empty: they are encoded from values

  DeviceBuffer workspace;
  std::vector<RowScratch> scratch;      // of each thread
  std::vector<ErrorTally> row_tallies;  // of the rows of a chunk
  std::vector<float> values;            // of a chunk that was FP8
  std::vector<std::uint16_t> bf16_values;
};

template <class Body>
void GroupEncoder::Impl::for_each_row(std::int64_t rows, const Body& body) {
  const std::int64_t cols = std::max<std::int64_t>(1, group.members[0].view.cols);
  const std::int64_t grain = std::max<std::int64_t>(1, kValuesAtATime / cols);
  pool.parallel_for(rows, grain, [&](std::int64_t first, std::int64_t last, int thread_idx) {
    for (std::int64_t row = first; row < last; ++row) {
      body(row, static_cast<std::size_t>(thread_idx));
    }
  });
}

template <class Params>
void GroupEncoder::Impl::run(const Params& params) {
  const std::int64_t bytes = backend.workspace_bytes(params);
  if (bytes > workspace.size_bytes()) workspace = backend.allocate(bytes);
  OpContext context;
  context.workspace = workspace.data();
  context.workspace_bytes = workspace.size_bytes();
  backend.run(params, context);
  backend.synchronize();
}

float GroupEncoder::Impl::amax_of(const MatrixView& rows) {
  float amax = 0;
  run(AmaxParams{rows, &amax});
  return amax;
}

// Valid until the next call.
MatrixView GroupEncoder::Impl::decode(const MatrixView& rows) {
  const auto count = static_cast<std::size_t>(rows.rows * rows.cols);
  MutableMatrixView decoded;
  if (decodes_to_bf16(rows)) {
    bf16_values.resize(count);
    decoded = bf16_matrix(bf16_values.data(), rows.rows, rows.cols);
  } else {
    values.resize(count);
    decoded = f32_matrix(values.data(), rows.rows, rows.cols);
  }
  run(DequantizeParams{rows, decoded});
  return decoded;
}

float GroupEncoder::Impl::global_scale_of_values(const RowsReadCallback& rows_read) {
  float largest = 0;
  for (const NamedMatrix& matrix : group.members) {
    const MatrixView& view = matrix.view;
    for (std::int64_t begin = 0, end = 0; begin < view.rows; begin = end) {
      end = piece_end(view, begin, view.rows, kEncoderChunkValues);
      const float amax = amax_of(rows_of(view, begin, end));
      if (!is_finite(amax)) require_finite(matrix, begin, end);
      largest = std::max(largest, amax);
      if (rows_read) rows_read(matrix, begin, end);
    }
  }
  const float result = options.four_over_six ? nvfp4_four_over_six_global_scale(largest)
                                             : nvfp4_global_scale(largest);
  if (!(result > 0)) return 1.0f;
  // The nearest number that the file can hold, whatever g that makes.
  const float stored = 1.0f / result;
  return options.stores_reciprocal && is_finite(stored) ? 1.0f / stored : result;
}

// Rows need not note blocks that are better than the worst so far.
void GroupEncoder::Impl::start_rows(std::int64_t rows, const ErrorTally& tally) {
  ErrorTally row;
  row.worst.relative_error = tally.worst.relative_error;
  row_tallies.assign(static_cast<std::size_t>(rows), row);
}

// Row after row, so that sums do not depend on who measured what.
void GroupEncoder::Impl::finish_rows(const NamedMatrix& matrix, std::int64_t begin,
                                     ErrorTally& tally) {
  for (std::size_t row = 0; row < row_tallies.size(); ++row) {
    WorstQuantBlock& worst = row_tallies[row].worst;
    if (worst.relative_error > tally.worst.relative_error) {
      worst.matrix = matrix.name;
      worst.row = begin + static_cast<std::int64_t>(row);
    }
    tally.merge(row_tallies[row]);
  }
}

void GroupEncoder::Impl::cast(int member_idx, std::int64_t begin, std::int64_t end,
                              std::uint8_t* codes, std::uint8_t* block_scales, ErrorTally& tally) {
  const Fp4Caster& caster = casters[static_cast<std::size_t>(member_idx)];
  const std::int64_t cols = group.members[0].view.cols;
  start_rows(end - begin, tally);
  for_each_row(end - begin, [&](std::int64_t row, std::size_t thread_idx) {
    caster.cast_row(begin + row, codes + row * (cols / 2),
                    block_scales + row * (cols / kNvfp4QuantBlock), scratch[thread_idx],
                    row_tallies[static_cast<std::size_t>(row)]);
  });
  finish_rows(group.members[static_cast<std::size_t>(member_idx)], begin, tally);
}

void GroupEncoder::Impl::encode_values(const NamedMatrix& matrix, std::int64_t begin,
                                       std::int64_t end, std::uint8_t* codes,
                                       std::uint8_t* block_scales, ErrorTally& tally) {
  float tensor_scale = global_scale;
  QuantizeParams p;
  p.x = rows_of(matrix.view, begin, end);
  if (is_quantized(p.x.format)) {
    p.x = decode(p.x);
  }
  p.out.data = codes;
  p.out.format = Format::kNvfp4;
  p.out.rows = p.x.rows;
  p.out.cols = p.out.row_stride = p.x.cols;
  p.out.block_scales = block_scales;
  p.out.scale_dtype = DType::kE4M3;
  p.out.block_cols = kNvfp4QuantBlock;
  p.out.scale_stride = p.x.cols / kNvfp4QuantBlock;
  p.out.global_scales = &tensor_scale;
  p.rounding = options.rounding;
  p.four_over_six = options.four_over_six;
  p.static_global_scales = &tensor_scale;
  run(p);
  start_rows(p.x.rows, tally);
  measure(p.x, codes, block_scales);
  finish_rows(matrix, begin, tally);
  if (is_packed(matrix.view.format)) {
    tally.reencoded_blocks += p.x.rows * (p.x.cols / kNvfp4QuantBlock);
  }
}

// Rows of a source that is not quantised, into their tallies.
void GroupEncoder::Impl::measure(const MatrixView& source, const std::uint8_t* codes,
                                 const std::uint8_t* block_scales) {
  const std::int64_t num_blocks = source.cols / kNvfp4QuantBlock;
  for_each_row(source.rows, [&](std::int64_t row, std::size_t thread_idx) {
    meter->add_row(source, row, codes + row * num_blocks * kNvfp4BlockBytes,
                   block_scales + row * num_blocks, 0, scratch[thread_idx].errors.data(),
                   row_tallies[static_cast<std::size_t>(row)]);
  });
}

GroupEncoder::GroupEncoder(Backend& backend, ThreadPool& pool, MatrixGroup group,
                           const EncodingOptions& options, const RowsReadCallback& rows_read)
    : impl_(std::make_unique<Impl>(backend, pool, std::move(group), options)) {
  DSV4_CHECK(backend.uses_host_memory(), "matrices are encoded where they lie, in host memory");
  check_group(impl_->group);
  impl_->scratch.assign(static_cast<std::size_t>(pool.num_threads()),
                        RowScratch(impl_->group.members[0].view.cols));
  if (!can_cast(impl_->group)) {
    impl_->global_scale = impl_->global_scale_of_values(rows_read);
    impl_->meter.emplace(impl_->global_scale);
    return;
  }
  const float global_scale = cast_global_scale(pool, impl_->group, rows_read);
  impl_->global_scale = global_scale;
  impl_->meter.emplace(options.stores_reciprocal
                           ? 1.0f / stored_scale(global_scale, Nvfp4Layout::kCompressedTensors,
                                                 impl_->group.members[0].name)
                           : global_scale);
  for (const NamedMatrix& matrix : impl_->group.members) {
    impl_->casters.emplace_back(matrix.view, global_scale, *impl_->meter, options.rounding);
  }
}

GroupEncoder::~GroupEncoder() = default;

float GroupEncoder::global_scale() const { return impl_->global_scale; }

void GroupEncoder::encode(int member_idx, std::int64_t begin, std::int64_t end, std::uint8_t* codes,
                          std::uint8_t* block_scales, ErrorTally& tally) {
  const NamedMatrix& matrix = impl_->group.members[static_cast<std::size_t>(member_idx)];
  if (matrix.view.empty()) return;  // its data may be null
  const bool is_cast = !impl_->casters.empty();
  const std::int64_t chunk_values = is_cast ? kCastChunkValues : kEncoderChunkValues;
  const std::int64_t cols = matrix.view.cols;
  for (std::int64_t first = begin, last = 0; first < end; first = last) {
    last = piece_end(matrix.view, first, end, chunk_values);
    std::uint8_t* const first_codes = codes + (first - begin) * (cols / 2);
    std::uint8_t* const first_scales = block_scales + (first - begin) * (cols / kNvfp4QuantBlock);
    if (is_cast) {
      impl_->cast(member_idx, first, last, first_codes, first_scales, tally);
    } else {
      impl_->encode_values(matrix, first, last, first_codes, first_scales, tally);
    }
  }
}

}  // namespace dsv4
