// Quantisation of a prompt's activations, bound by the bytes that it reads and writes.
#include <fmt/format.h>

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

// About the largest magnitude of the inputs / 2688.
constexpr float kStaticScale = 3.5f / 2688;

class QuantizeBench {
 public:
  QuantizeBench(CudaBench& bench, std::int64_t rows, std::int64_t cols, const MatrixSpec& out_spec)
      : bench_(bench),
        backend_(bench.backend()),
        x_shape_(testing::bf16_spec(), 1, cols),
        out_shape_(out_spec, 1, cols),
        rows_(rows),
        cols_(cols) {}

  void run() {
    CudaBenchmark b{.op = "quantize",
                    .shape = fmt::format("{}x{}", rows_, cols_),
                    .format = fmt::format("{}{}", to_string(out_shape_.spec.format),
                                          is_static() ? "-static" : ""),
                    .m = rows_};
    sets_ = {without_memory()};
    const Cost useful = cost(sets_[0]);
    b.bytes = static_cast<double>(useful.bytes_read + useful.bytes_written);
    b.memory = CudaCeiling::kCopy;
    b.num_sets = bench_.sets_for(b.bytes);
    if (!bench_.wants(b)) return;
    if (const Support support = backend_.supports(sets_[0]); !support) {
      fmt::print("{:<16} {:<16} {:<14} {}\n", b.op, b.shape, b.format, support.reason);
      return;
    }
    sets_.resize(static_cast<std::size_t>(b.num_sets), sets_[0]);
    std::uint64_t seed = 1;
    for (QuantizeParams& p : sets_) allocate(p, seed++);
    backend_.synchronize();
    b.call = [this](std::int64_t call_idx, DeviceStream stream) {
      backend_.run(sets_[static_cast<std::size_t>(call_idx) % sets_.size()], {.stream = stream});
    };
    b.check = [this] { return compare_rows(sets_.back()); };
    bench_.run(b);
  }

 private:
  // NVFP4 with one global scale for all rows instead of a dynamic one each.
  bool is_static() const {
    return out_shape_.spec.format == Format::kNvfp4 && !out_shape_.spec.row_global_scales;
  }

  QuantizeParams without_memory() const {
    QuantizeParams p;
    p.x = x_shape_.view();
    p.out = out_shape_.view_on(nullptr, nullptr, nullptr);
    p.x.rows = p.out.rows = rows_;
    return p;
  }

  void allocate(QuantizeParams& p, std::uint64_t seed) {
    const auto allocated = [this](std::int64_t bytes) {
      memory_.push_back(backend_.allocate(bytes));
      return memory_.back().data();
    };
    std::byte* const x = allocated(rows_ * cols_ * 2);
    cuda::fill_normal_bf16(x, rows_ * cols_, seed);
    p.x.data = x;
    p.out.data = allocated(rows_ * static_cast<std::int64_t>(out_shape_.data.size()));
    p.out.block_scales =
        allocated(rows_ * static_cast<std::int64_t>(out_shape_.block_scales.size()));
    p.out.global_scales = reinterpret_cast<float*>(allocated(rows_ * 4));
    if (!is_static()) return;
    backend_.copy_to_device(p.out.global_scales, &kStaticScale, sizeof(kStaticScale));
    p.static_global_scales = p.out.global_scales;
  }

  std::string compare_rows(const QuantizeParams& p) {
    backend_.run(p);
    backend_.synchronize();
    ReferenceBackend reference;
    for (std::int64_t i = 0; i < 64; ++i) {
      const std::int64_t row = i == 0 ? rows_ - 1 : i * 997 % rows_;
      const HostMatrix x = row_from(backend_, x_shape_, p.x, row);
      const HostMatrix got = row_from(backend_, out_shape_, p.out, row);
      HostMatrix want(out_shape_.spec, 1, cols_);
      QuantizeParams one = p;
      one.x = x.view();
      one.out = want.mutable_view();
      if (is_static()) one.static_global_scales = &kStaticScale;
      reference.run(one);
      if (got.data != want.data) return fmt::format("codes of row {} differ", row);
      if (got.block_scales != want.block_scales) return fmt::format("scales of row {} differ", row);
    }
    return {};
  }

  CudaBench& bench_;
  Backend& backend_;
  HostMatrix x_shape_, out_shape_;  // of one row
  std::int64_t rows_, cols_;
  std::vector<DeviceBuffer> memory_;
  std::vector<QuantizeParams> sets_;
};

}  // namespace

void bench_cuda_quantize(CudaBench& bench) {
  for (const std::int64_t cols : {std::int64_t{4096}, std::int64_t{7168}}) {
    for (const std::int64_t rows : {std::int64_t{16}, std::int64_t{128}, std::int64_t{8192}}) {
      for (const MatrixSpec& out :
           {testing::nvfp4_spec(false), testing::nvfp4_spec(true),
            testing::fp8_spec(1, 128, DType::kE8M0), testing::mxfp4_spec()}) {
        QuantizeBench(bench, rows, cols, out).run();
      }
    }
  }
}

}  // namespace dsv4::bench
