// SwiGLU and quantisation in one op, of the BF16 output of a gate and up GEMM: bound by its bytes.
#include <fmt/format.h>

#include <vector>

#include "bench/cuda_bench.h"
#include "bench/cuda_rows.h"
#include "cuda/bench/fill.h"
#include "ops/quantize.h"
#include "reference/reference_backend.h"

namespace dsv4::bench {
namespace {

using testing::HostMatrix;
using testing::MatrixSpec;

// About the largest product of a silu and a value / 2688.
constexpr float kStaticScale = 10.0f / 2688;

class SwigluBench {
 public:
  SwigluBench(CudaBench& bench, std::int64_t rows, std::int64_t cols, const MatrixSpec& out_spec)
      : bench_(bench),
        backend_(bench.backend()),
        both_shape_(testing::bf16_spec(), 1, 2 * cols),
        out_shape_(out_spec, 1, cols),
        rows_(rows),
        cols_(cols),
        is_static_(out_spec.format == Format::kNvfp4 && !out_spec.row_global_scales) {}

  void run() {
    CudaBenchmark b{.op = "swiglu_quantize",
                    .shape = fmt::format("{}x{}", rows_, cols_),
                    .format = fmt::format("{}{}", to_string(out_shape_.spec.format),
                                          is_static_ ? "-static" : ""),
                    .m = rows_};
    sets_ = {with_memory(nullptr, nullptr, nullptr, nullptr)};
    const Cost useful = cost(sets_[0]);
    b.bytes = static_cast<double>(useful.bytes_read + useful.bytes_written);
    b.memory = CudaCeiling::kCopy;
    b.num_sets = bench_.sets_for(b.bytes);
    if (!bench_.wants(b)) return;
    sets_.clear();
    for (std::int64_t i = 0; i < b.num_sets; ++i) add_set(static_cast<std::uint64_t>(i) + 1);
    backend_.synchronize();
    b.call = [this](std::int64_t call_idx, DeviceStream stream) {
      backend_.run(sets_[static_cast<std::size_t>(call_idx) % sets_.size()], {.stream = stream});
    };
    b.check = [this] { return compare_rows(sets_.back()); };
    bench_.run(b);
  }

 private:
  // Gate and up are the halves of `both`.
  SwigluQuantizeParams with_memory(const std::byte* both, std::byte* codes, std::byte* scales,
                                   std::byte* global_scales) const {
    SwigluQuantizeParams p;
    p.gate = both_shape_.view();
    p.gate.rows = rows_;
    p.gate.cols = cols_;
    p.gate.data = both;
    p.up = p.gate;
    if (both != nullptr) p.up.data = both + data_bytes(Format::kBf16, cols_);
    p.swiglu_limit = 10;
    p.out = out_shape_.view_on(reinterpret_cast<std::uint8_t*>(codes),
                               reinterpret_cast<std::uint8_t*>(scales),
                               reinterpret_cast<float*>(global_scales));
    p.out.rows = rows_;
    if (is_static_) p.static_global_scales = p.out.global_scales;
    return p;
  }

  void add_set(std::uint64_t seed) {
    const auto allocated = [this](std::size_t row_bytes) {
      memory_.push_back(backend_.allocate(rows_ * static_cast<std::int64_t>(row_bytes)));
      return memory_.back().data();
    };
    std::byte* const both = allocated(both_shape_.data.size());
    cuda::fill_normal_bf16(both, 2 * rows_ * cols_, seed);
    std::byte* const global_scales = allocated(sizeof(float));
    if (is_static_) {
      backend_.copy_to_device(global_scales, &kStaticScale, sizeof(kStaticScale));
    }
    sets_.push_back(with_memory(both, allocated(out_shape_.data.size()),
                                allocated(out_shape_.block_scales.size()), global_scales));
  }

  std::string compare_rows(const SwigluQuantizeParams& p) {
    backend_.run(p);
    backend_.synchronize();
    MatrixView both = p.gate;
    both.cols = 2 * cols_;
    ReferenceBackend reference;
    for (std::int64_t i = 0; i < 64; ++i) {
      const std::int64_t row = i == 0 ? rows_ - 1 : i * 997 % rows_;
      const HostMatrix inputs = row_from(backend_, both_shape_, both, row);
      const HostMatrix got = row_from(backend_, out_shape_, p.out, row);
      HostMatrix want(out_shape_.spec, 1, cols_);
      SwigluQuantizeParams one = p;
      one.gate = one.up = inputs.view();
      one.gate.cols = one.up.cols = cols_;
      one.up.data = inputs.data.data() + data_bytes(Format::kBf16, cols_);
      one.out = want.mutable_view();
      if (is_static_) one.static_global_scales = &kStaticScale;
      reference.run(one);
      if (got.data != want.data) return fmt::format("codes of row {} differ", row);
      if (got.block_scales != want.block_scales) return fmt::format("scales of row {} differ", row);
    }
    return {};
  }

  CudaBench& bench_;
  Backend& backend_;
  HostMatrix both_shape_, out_shape_;  // of one row
  std::int64_t rows_, cols_;
  bool is_static_;
  std::vector<DeviceBuffer> memory_;
  std::vector<SwigluQuantizeParams> sets_;
};

}  // namespace

void bench_cuda_swiglu(CudaBench& bench) {
  // An expert's columns in Flash and in Pro; six rows for each of 8192 tokens.
  for (const std::int64_t cols : {2048, 3072}) {
    for (const std::int64_t rows : {std::int64_t{128}, std::int64_t{6 * 8192}}) {
      for (const MatrixSpec& out : {testing::nvfp4_spec(false), testing::nvfp4_spec(true),
                                    testing::fp8_spec(1, 128, DType::kE8M0)}) {
        SwigluBench(bench, rows, cols, out).run();
      }
    }
  }
}

}  // namespace dsv4::bench
