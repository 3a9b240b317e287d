// Quantisation of activations, of rows as they are and of their SwiGLU, bound by the bytes that it
// reads and writes.
#include <fmt/format.h>

#include <string>
#include <utility>
#include <vector>

#include "bench/cuda_bench.h"
#include "bench/cuda_rows.h"
#include "cuda/bench/fill.h"
#include "ops/quantize.h"
#include "reference/reference_backend.h"
#include "testing/test_matrix.h"

namespace dsv4::bench {
namespace {

using testing::HostMatrix;
using testing::MatrixSpec;

// What the two ops take from rows of inputs: x, or gate and up as their halves. A static global
// scale is about the largest magnitude of what is quantised / 2688.
struct Quantize {
  using Params = QuantizeParams;
  static constexpr std::int64_t kMatrices = 1;
  static constexpr float kStaticScale = 3.5f / 2688;
  static void set_inputs(Params& p, const MatrixView& inputs) { p.x = inputs; }
};
struct SwigluQuantize {
  using Params = SwigluQuantizeParams;
  static constexpr std::int64_t kMatrices = 2;
  static constexpr float kStaticScale = 10.0f / 2688;
  static void set_inputs(Params& p, const MatrixView& inputs) {
    p.swiglu_limit = 10;
    p.gate = inputs;
    p.gate.cols = inputs.cols / 2;
    p.up = p.gate;
    if (inputs.data == nullptr) return;
    p.up.data = static_cast<const std::byte*>(inputs.data) + data_bytes(inputs.format, p.gate.cols);
  }
};

template <class Op>
class RowsBench {
 public:
  using Params = typename Op::Params;

  RowsBench(CudaBench& bench, std::int64_t rows, std::int64_t cols, const MatrixSpec& in_spec,
            const MatrixSpec& out_spec)
      : bench_(bench),
        backend_(bench.backend()),
        in_shape_(in_spec, 1, Op::kMatrices * cols),
        out_shape_(out_spec, 1, cols),
        rows_(rows),
        cols_(cols) {}

  void run() {
    CudaBenchmark b{.op = std::string(Params::kOpName),
                    .shape = fmt::format("{}x{}", rows_, cols_),
                    .format = fmt::format("{}{}{}", to_string(out_shape_.spec.format),
                                          is_static() ? "-static" : "",
                                          in_shape_.spec.format == Format::kF32 ? "-of-F32" : ""),
                    .m = rows_};
    const Params shape = params_on(nullptr, nullptr, nullptr, nullptr);
    const Cost useful = cost(shape);
    b.bytes = static_cast<double>(useful.bytes_read + useful.bytes_written);
    b.memory = CudaCeiling::kCopy;
    b.num_sets = bench_.sets_for(b.bytes);
    if (!bench_.wants(b)) return;
    if (const Support support = backend_.supports(shape); !support) {
      fmt::print("{:<16} {:<16} {:<20} {}\n", b.op, b.shape, b.format, support.reason);
      return;
    }
    for (std::int64_t i = 0; i < b.num_sets; ++i) add_set(static_cast<std::uint64_t>(i) + 1);
    backend_.synchronize();
    b.call = [this](std::int64_t call_idx, DeviceStream stream) {
      backend_.run(sets_[static_cast<std::size_t>(call_idx) % sets_.size()], {.stream = stream});
    };
    b.check = [this] { return compare_rows(); };
    bench_.run(b);
  }

 private:
  // NVFP4 with one global scale for all rows instead of a dynamic one each.
  bool is_static() const {
    return out_shape_.spec.format == Format::kNvfp4 && !out_shape_.spec.row_global_scales;
  }

  MatrixView inputs_on(const std::byte* data) const {
    MatrixView inputs = in_shape_.view();
    inputs.data = data;
    inputs.rows = rows_;
    return inputs;
  }

  Params params_on(const std::byte* inputs, std::byte* codes, std::byte* block_scales,
                   std::byte* global_scales) const {
    Params p;
    Op::set_inputs(p, inputs_on(inputs));
    p.out = out_shape_.view_on(reinterpret_cast<std::uint8_t*>(codes),
                               reinterpret_cast<std::uint8_t*>(block_scales),
                               reinterpret_cast<float*>(global_scales));
    p.out.rows = rows_;
    if (is_static()) p.static_global_scales = p.out.global_scales;
    return p;
  }

  std::byte* allocate(std::int64_t bytes) {
    memory_.push_back(backend_.allocate(bytes));
    return memory_.back().data();
  }
  std::byte* allocate_rows_of(const std::vector<std::uint8_t>& row) {
    return allocate(rows_ * static_cast<std::int64_t>(row.size()));
  }

  void add_set(std::uint64_t seed) {
    std::byte* const inputs = allocate_rows_of(in_shape_.data);
    inputs_.push_back(inputs);
    const std::int64_t count = rows_ * in_shape_.cols;
    if (in_shape_.spec.format == Format::kF32) {
      cuda::fill_normal_f32(inputs, count, seed);
    } else {
      cuda::fill_normal_bf16(inputs, count, seed);
    }
    std::byte* const global_scales = allocate(rows_ * 4);
    if (is_static()) {
      backend_.copy_to_device(global_scales, &Op::kStaticScale, sizeof(Op::kStaticScale));
    }
    sets_.push_back(params_on(inputs, allocate_rows_of(out_shape_.data),
                              allocate_rows_of(out_shape_.block_scales), global_scales));
  }

  // 64 rows, the first and the last among them, of the last set.
  std::string compare_rows() {
    const Params& p = sets_.back();
    backend_.run(p);
    backend_.synchronize();
    ReferenceBackend reference;
    for (std::int64_t i = 0; i < 64; ++i) {
      const std::int64_t row = i == 1 ? rows_ - 1 : i * 997 % rows_;
      const HostMatrix inputs = row_from(backend_, in_shape_, inputs_on(inputs_.back()), row);
      const HostMatrix got = row_from(backend_, out_shape_, p.out, row);
      HostMatrix want(out_shape_.spec, 1, cols_);
      Params one = p;
      Op::set_inputs(one, inputs.view());
      one.out = want.mutable_view();
      if (is_static()) one.static_global_scales = &Op::kStaticScale;
      reference.run(one);
      if (got.data != want.data) return fmt::format("codes of row {} differ", row);
      if (got.block_scales != want.block_scales) return fmt::format("scales of row {} differ", row);
      if (!is_static() && got.global_scales != want.global_scales) {
        return fmt::format("the global scale of row {} differs", row);
      }
    }
    return {};
  }

  CudaBench& bench_;
  Backend& backend_;
  HostMatrix in_shape_, out_shape_;  // of one row
  std::int64_t rows_, cols_;
  std::vector<DeviceBuffer> memory_;
  std::vector<const std::byte*> inputs_;  // of sets_
  std::vector<Params> sets_;
};

std::vector<MatrixSpec> out_specs() {
  return {testing::nvfp4_spec(false), testing::nvfp4_spec(true),
          testing::fp8_spec(1, 128, DType::kE8M0), testing::mxfp4_spec()};
}

}  // namespace

void bench_cuda_quantize(CudaBench& bench) {
  const MatrixSpec bf16 = testing::bf16_spec(), f32 = testing::f32_spec();
  for (const std::int64_t cols : {std::int64_t{4096}, std::int64_t{7168}}) {
    for (const std::int64_t rows : {std::int64_t{16}, std::int64_t{128}, std::int64_t{8192}}) {
      for (const MatrixSpec& out : out_specs()) {
        RowsBench<Quantize>(bench, rows, cols, bf16, out).run();
      }
    }
    for (const MatrixSpec& out : out_specs()) {
      RowsBench<Quantize>(bench, 8192, cols, f32, out).run();
    }
  }
  // Short rows, longer ones, and rows too long for a CTA's registers.
  const std::pair<std::int64_t, std::int64_t> shapes[] = {
      {49152, 1024}, {8192, 2048}, {4096, 14336}, {512, 65536}};
  for (const auto& [rows, cols] : shapes) {
    RowsBench<Quantize>(bench, rows, cols, bf16, testing::nvfp4_spec(true)).run();
  }
}

void bench_cuda_swiglu(CudaBench& bench) {
  const MatrixSpec bf16 = testing::bf16_spec();
  // An expert's columns in Flash and in Pro; six rows for each of 8192 tokens.
  for (const std::int64_t cols : {2048, 3072}) {
    for (const std::int64_t rows : {std::int64_t{128}, std::int64_t{6 * 8192}}) {
      for (const MatrixSpec& out : out_specs()) {
        RowsBench<SwigluQuantize>(bench, rows, cols, bf16, out).run();
      }
    }
  }
  for (const MatrixSpec& in : {bf16, testing::f32_spec()}) {
    for (const MatrixSpec& out : out_specs()) {
      RowsBench<SwigluQuantize>(bench, 8192, 4096, in, out).run();
    }
  }
}

}  // namespace dsv4::bench
