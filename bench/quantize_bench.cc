// Conversions between BF16 and the quantised formats, as the quantiser takes them: values to NVFP4
// under a known global scale, the largest magnitude, both in turn over a mapped file, and decoding.
#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <fstream>
#include <memory>
#include <vector>

#include "bench/bench.h"
#include "bench/files.h"
#include "bench/weights.h"
#include "io/mapped_file.h"
#include "numerics/nvfp4.h"
#include "ops/op_checks.h"
#include "testing/each_backend.h"

namespace dsv4::bench {
namespace {

using testing::MatrixSpec;

constexpr std::int64_t kRows = 4096, kCols = 4096;

// `count` matrices for outputs, one after the other.
class Outputs {
 public:
  Outputs(const MatrixSpec& spec, std::int64_t rows, std::int64_t cols, std::int64_t count)
      : spec_(spec),
        rows_(rows),
        cols_(cols),
        count_(count),
        data_(static_cast<std::size_t>(count * data_bytes(spec.format, rows * cols))),
        scales_(is_quantized(spec.format)
                    ? static_cast<std::size_t>(count * rows * cols / spec.block_cols)
                    : 0) {}

  MutableMatrixView view(std::int64_t idx) {
    const std::int64_t n = idx % count_;
    MutableMatrixView view;
    view.data = data_.data() + n * data_bytes(spec_.format, rows_ * cols_);
    view.format = spec_.format;
    view.rows = rows_;
    view.cols = view.row_stride = cols_;
    if (!is_quantized(spec_.format)) return view;
    view.scale_dtype = spec_.scale_dtype;
    view.block_cols = spec_.block_cols;
    view.scale_stride = cols_ / spec_.block_cols;
    view.block_scales = scales_.data() + n * rows_ * view.scale_stride;
    view.global_scales = &global_scale_;
    return view;
  }

 private:
  MatrixSpec spec_;
  std::int64_t rows_, cols_, count_;
  std::vector<std::uint8_t> data_, scales_;
  float global_scale_ = 0;
};

template <class Matrix>
Matrix some_rows(Matrix m, std::int64_t rows) {
  m.rows = rows;
  return m;
}

// The first `rows` rows by the reference backend; its time, of the second run.
template <class Params>
double run_reference(const Bench& bench, Params params, std::int64_t rows, Outputs& out) {
  params.x = some_rows(params.x, rows);
  params.out = some_rows(out.view(0), rows);
  const auto run = [&] { testing::run_op(testing::reference_backend(), params); };
  run();
  return seconds_of(run, 1, bench.options().cpu_time);
}

std::string compare_rows(const MatrixView& got, const MatrixView& want, std::int64_t rows) {
  const auto bytes = static_cast<std::size_t>(rows * data_bytes(got.format, got.cols));
  if (std::memcmp(got.data, want.data, bytes) != 0) return "other bytes";
  const auto scales = static_cast<std::size_t>(rows * got.scale_stride);
  if (is_quantized(got.format) && std::memcmp(got.block_scales, want.block_scales, scales) != 0) {
    return "other block scales";
  }
  return {};
}

// One op from `inputs` to `outputs`, both rotated: checked and timed against the reference over the
// first rows, and a share of copying.
template <class Params>
void bench_conversion(Bench& bench, Benchmark b, Params params, const RandomWeights& inputs,
                      Outputs& outputs, const MatrixSpec& out_spec) {
  constexpr std::int64_t kReferenceRows = 64;
  CpuBackend& backend = bench.backend();
  params.x = inputs.view(0);
  params.out = outputs.view(0);
  const DeviceBuffer workspace = backend.allocate(backend.workspace_bytes(params));
  const OpContext context{{}, workspace.data(), workspace.size_bytes()};
  const Cost work = cost(params);
  b.bytes = static_cast<double>(work.bytes_read + work.bytes_written);
  b.flops = work.flops;
  b.memory = "copy";
  b.memory_bytes_per_second = [&] { return bench.ceilings().copy_bytes_per_second(); };
  b.call = [&](std::int64_t call_idx) {
    params.x = inputs.view(call_idx % inputs.count());
    params.out = outputs.view(call_idx);
    backend.run(params, context);
  };
  Outputs want(out_spec, kReferenceRows, kCols, 1);
  params.x = inputs.view(0);
  b.reference_seconds = run_reference(bench, params, kReferenceRows, want) *
                        static_cast<double>(kRows / kReferenceRows);
  b.check = [&] {
    b.call(0);
    return compare_rows(outputs.view(0), want.view(0), kReferenceRows);
  };
  bench.run(b);
}

Benchmark row(const std::string& op, const std::string& format) {
  return {op, fmt::format("{}x{}", kRows, kCols), format, kRows};
}

std::int64_t num_inputs(const Bench& bench, const MatrixSpec& spec) {
  const double bytes = RandomWeights::bytes(spec, kRows, kCols);
  return std::max<std::int64_t>(
      1, static_cast<std::int64_t>(static_cast<double>(bench.options().bytes) / bytes));
}

void bench_encoding(Bench& bench) {
  const Benchmark plain = row("quantize", "NVFP4");
  const Benchmark four_over_six = row("four_over_6", "NVFP4");
  const Benchmark amax = row("amax", "BF16");
  if (!bench.wants(plain) && !bench.wants(four_over_six) && !bench.wants(amax)) return;
  const RandomWeights inputs(testing::bf16_spec(), kRows, kCols,
                             num_inputs(bench, testing::bf16_spec()));
  Outputs outputs(testing::nvfp4_spec(), kRows, kCols, inputs.count());
  const float global_scale = nvfp4_global_scale(0.5f);
  QuantizeParams params;
  params.static_global_scales = &global_scale;
  if (bench.wants(plain)) {
    bench_conversion(bench, plain, params, inputs, outputs, testing::nvfp4_spec());
  }
  params.four_over_six = true;
  const float wider_global_scale = nvfp4_four_over_six_global_scale(0.5f);
  params.static_global_scales = &wider_global_scale;
  if (bench.wants(four_over_six)) {
    bench_conversion(bench, four_over_six, params, inputs, outputs, testing::nvfp4_spec());
  }
  if (!bench.wants(amax)) return;
  float largest = 0;
  AmaxParams amax_params{inputs.view(0), &largest};
  const DeviceBuffer workspace =
      bench.backend().allocate(bench.backend().workspace_bytes(amax_params));
  Benchmark b = amax;
  b.bytes = static_cast<double>(cost(amax_params).bytes_read);
  b.flops = cost(amax_params).flops;
  b.call = [&](std::int64_t call_idx) {
    amax_params.x = inputs.view(call_idx % inputs.count());
    bench.backend().run(amax_params, {{}, workspace.data(), workspace.size_bytes()});
  };
  b.check = [&]() -> std::string {
    b.call(0);
    float want = 0;
    testing::run_op(testing::reference_backend(), AmaxParams{amax_params.x, &want});
    return largest == want ? "" : fmt::format("{} instead of {}", largest, want);
  };
  bench.run(b);
}

// Amax, then encoding, of a BF16 matrix in a file that the page cache holds: mapped anew each time,
// as is the ceiling, which adds the file up.
void bench_file_conversion(Bench& bench) {
  constexpr std::int64_t kFileRows = 8 * kRows;
  Benchmark b = row("convert", "NVFP4");
  b.shape = fmt::format("{}x{}", kFileRows, kCols);
  b.m = kFileRows;
  if (!bench.wants(b)) return;
  const RandomWeights values(testing::bf16_spec(), kFileRows, kCols, 1);
  const auto bytes = static_cast<std::size_t>(kFileRows * kCols * 2);
  const TemporaryDirectory dir;
  std::filesystem::create_directory(dir.path());
  const std::filesystem::path path = dir.path() / "values";
  std::ofstream(path, std::ios::binary)
      .write(static_cast<const char*>(values.view(0).data), static_cast<std::streamsize>(bytes));
  forget_file(path);
  b.bytes = static_cast<double>(bytes);
  b.memory = "mapped";
  b.memory_bytes_per_second = [&] {
    double rate = 0;
    const double seconds = seconds_of(
        [&] {
          const MappedFile file = MappedFile::open(path);
          rate = bench.ceilings().read_bytes_per_second(
              {reinterpret_cast<const float*>(file.bytes().data()), bytes / sizeof(float)});
        },
        bench.backend().num_threads(), bench.options().cpu_time);
    return rate > 0 ? b.bytes / seconds : 0;
  };
  CpuBackend& backend = bench.backend();
  Outputs out(testing::nvfp4_spec(), kFileRows, kCols, 1);
  MatrixView x = values.view(0);
  float largest = 0, global_scale = 0;
  AmaxParams amax{x, &largest};
  QuantizeParams quantize{x, out.view(0)};
  quantize.static_global_scales = &global_scale;
  const DeviceBuffer workspace =
      backend.allocate(std::max(backend.workspace_bytes(amax), backend.workspace_bytes(quantize)));
  const OpContext context{{}, workspace.data(), workspace.size_bytes()};
  b.flops = cost(amax).flops + cost(quantize).flops;
  b.call = [&](std::int64_t) {
    const MappedFile file = MappedFile::open(path);
    amax.x.data = quantize.x.data = file.bytes().data();
    backend.run(amax, context);
    global_scale = nvfp4_global_scale(largest);
    backend.run(quantize, context);
  };
  b.check = [&] {
    constexpr std::int64_t kReferenceRows = 64;
    b.call(0);
    Outputs want(testing::nvfp4_spec(), kReferenceRows, kCols, 1);
    quantize.x.data = x.data;
    run_reference(bench, quantize, kReferenceRows, want);
    return compare_rows(out.view(0), want.view(0), kReferenceRows);
  };
  bench.run(b);
}

void bench_decoding(Bench& bench) {
  for (const MatrixSpec& spec :
       {testing::nvfp4_spec(), testing::mxfp4_spec(), testing::fp8_spec(128, 128, DType::kE8M0)}) {
    const Benchmark b = row("dequantize", std::string(to_string(spec.format)));
    if (!bench.wants(b)) continue;
    // The outputs are the larger part.
    const RandomWeights inputs(spec, kRows, kCols, num_inputs(bench, testing::bf16_spec()));
    Outputs outputs(testing::bf16_spec(), kRows, kCols, inputs.count());
    bench_conversion(bench, b, DequantizeParams{}, inputs, outputs, testing::bf16_spec());
  }
}

}  // namespace

void bench_quantize(Bench& bench) {
  bench_encoding(bench);
  bench_file_conversion(bench);
  bench_decoding(bench);
}

}  // namespace dsv4::bench
