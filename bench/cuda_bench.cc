#include "bench/cuda_bench.h"

#include <fmt/chrono.h>
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <ctime>

#include "backends/backends.h"
#include "base/error.h"
#include "bench/bench.h"
#include "cuda/bench/ceilings.h"
#include "cuda/bench/timer.h"
#include "cuda/devices.h"

namespace dsv4::bench {
namespace {

std::string_view to_string(CudaCeiling ceiling) {
  switch (ceiling) {
    case CudaCeiling::kRead:
      return "read";
    case CudaCeiling::kCopy:
      return "copy";
    case CudaCeiling::kBf16:
      return "bf16";
    case CudaCeiling::kFp8:
      return "fp8";
  }
  return "?";
}

// A figure of the table, empty if there is none.
std::string known(double us) { return us > 0 ? fmt::format("{:g}", us) : std::string(); }

}  // namespace

struct CudaBench::Measured {
  CudaDevice device;
  cuda::Ceilings ceilings;
};

std::string CudaBenchmark::name() const {
  return fmt::format("{} {} {} M={}", op, shape, format, m);
}

CudaBench::CudaBench(const CudaBenchOptions& options)
    : options_(options),
      backend_(open_backend(options.device)),
      measured_(std::make_unique<Measured>()) {
  const std::string name(backend_->name());
  for (const CudaDevice& device : find_cuda_devices().devices) {
    if (name == fmt::format("cuda:{}", device.device_idx)) measured_->device = device;
  }
  cuda::make_current(measured_->device.device_idx);
}

CudaBench::~CudaBench() = default;

bool CudaBench::wants(const CudaBenchmark& benchmark) const {
  return benchmark.name().find(options_.filter) != std::string::npos;
}

std::int64_t CudaBench::sets_for(double bytes) const {
  const double sets = 4.0 * static_cast<double>(measured_->device.l2_bytes) / bytes;
  return std::max<std::int64_t>(2, static_cast<std::int64_t>(std::ceil(sets)));
}

double CudaBench::ceiling(CudaCeiling which) const {
  switch (which) {
    case CudaCeiling::kRead:
      return measured_->ceilings.read_bytes_per_second;
    case CudaCeiling::kCopy:
      return measured_->ceilings.copy_bytes_per_second;
    case CudaCeiling::kBf16:
      return measured_->ceilings.bf16_flops_per_second;
    case CudaCeiling::kFp8:
      return measured_->ceilings.fp8_flops_per_second;
  }
  return 0;
}

void CudaBench::begin() {
  measured_->ceilings = cuda::measure_ceilings(*backend_);
  fmt::print(
      "{}\nceilings: read {:.2f} TB/s, copy {:.2f} TB/s, BF16 {:.0f} TFLOP/s, FP8 {:.0f} "
      "TFLOP/s\n",
      measured_->device.description(), ceiling(CudaCeiling::kRead) * 1e-12,
      ceiling(CudaCeiling::kCopy) * 1e-12, ceiling(CudaCeiling::kBf16) * 1e-12,
      ceiling(CudaCeiling::kFp8) * 1e-12);
  fmt::print("{:<16} {:<16} {:<14} {:>6} {:>9} {:>9} {:>9} {:>7} {:>6} {:>7} {:>8} {:>8}\n", "op",
             "shape", "format", "M", "us", "GB/s", "TFLOP/s", "binds", "share", "spread", "target",
             "peer");
  csv_ =
      "date,commit,gpu,driver,op,shape,format,m,us,spread,gb_per_s,tflop_per_s,ceiling,share,"
      "target_us,peer_us\n";
  for (const CudaCeiling which :
       {CudaCeiling::kRead, CudaCeiling::kCopy, CudaCeiling::kBf16, CudaCeiling::kFp8}) {
    const bool memory = which == CudaCeiling::kRead || which == CudaCeiling::kCopy;
    CudaBenchmark row{.op = "ceiling", .shape = std::string(to_string(which)), .format = "-"};
    (memory ? row.bytes : row.flops) = ceiling(which);
    add_csv(row, 1, 0, which, 1);
  }
}

void CudaBench::run(const CudaBenchmark& benchmark) {
  if (!wants(benchmark)) return;
  if (num_rows_ == 0) begin();
  const std::string wrong = benchmark.check();
  require(wrong.empty(), ErrorCode::kInternal, "{} does not agree with the reference: {}",
          benchmark.name(), wrong);
  const std::vector<double> times = cuda::time_calls(
      *backend_,
      {.call = benchmark.call, .num_sets = benchmark.num_sets, .num_replays = options_.rounds});
  const double seconds = median(times);
  const auto [fastest, slowest] = std::minmax_element(times.begin(), times.end());
  const double spread = (*slowest - *fastest) / seconds;
  const double memory_floor = benchmark.bytes / ceiling(benchmark.memory);
  const double tensor_floor = benchmark.flops / ceiling(benchmark.tensor);
  const CudaCeiling binding = memory_floor >= tensor_floor ? benchmark.memory : benchmark.tensor;
  const double share = std::max(memory_floor, tensor_floor) / seconds;
  fmt::print(
      "{:<16} {:<16} {:<14} {:>6} {:>9.2f} {:>9.0f} {:>9.1f} {:>7} {:>5.1f}% {:>6.1f}% {:>8} "
      "{:>8}\n",
      benchmark.op, benchmark.shape, benchmark.format, benchmark.m, seconds * 1e6,
      benchmark.bytes / seconds * 1e-9, benchmark.flops / seconds * 1e-12, to_string(binding),
      100 * share, 100 * spread, known(benchmark.target_us), known(benchmark.peer_us));
  std::fflush(stdout);
  ++num_rows_;
  add_csv(benchmark, seconds, spread, binding, share);
}

void CudaBench::add_csv(const CudaBenchmark& benchmark, double seconds, double spread,
                        CudaCeiling binding, double share) {
  csv_ += fmt::format(
      "{:%Y-%m-%d},{},{},{},{},{},{},{},{:.3f},{:.4f},{:.1f},{:.2f},{},{:.4f},{},{}\n",
      fmt::gmtime(std::time(nullptr)), options_.commit, measured_->device.name,
      measured_->device.driver, benchmark.op, benchmark.shape, benchmark.format, benchmark.m,
      seconds * 1e6, spread, benchmark.bytes / seconds * 1e-9, benchmark.flops / seconds * 1e-12,
      to_string(binding), share, known(benchmark.target_us), known(benchmark.peer_us));
}

void CudaBench::finish() { write_csv(num_rows_, options_.filter, options_.csv_path, csv_); }

void run_cuda_bench(const CudaBenchOptions& options) {
  CudaBench bench(options);
  bench_cuda_copy(bench);
  bench_cuda_quantize(bench);
  bench_cuda_swiglu(bench);
  bench_cuda_moe(bench);
  bench.finish();
}

}  // namespace dsv4::bench
