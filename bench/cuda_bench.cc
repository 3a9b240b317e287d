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

  const cuda::Ceiling& ceiling(CudaCeiling which) const;
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
  return options_.rows.wants(benchmark.op, benchmark.name());
}

std::int64_t CudaBench::sets_for(double bytes) const {
  const double sets = 4.0 * static_cast<double>(measured_->device.l2_bytes) / bytes;
  return std::max<std::int64_t>(2, static_cast<std::int64_t>(std::ceil(sets)));
}

const cuda::Ceiling& CudaBench::Measured::ceiling(CudaCeiling which) const {
  switch (which) {
    case CudaCeiling::kRead:
      return ceilings.read;
    case CudaCeiling::kCopy:
      return ceilings.copy;
    case CudaCeiling::kBf16:
      return ceilings.bf16;
    case CudaCeiling::kFp8:
      break;
  }
  return ceilings.fp8;
}

void CudaBench::begin() {
  measured_->ceilings = cuda::measure_ceilings(*backend_);
  fmt::print("{}\n", measured_->device.description());
  csv_ =
      "date,commit,gpu,driver_cuda,op,shape,format,m,us,spread,gb_per_s,tflop_per_s,ceiling,share,"
      "target_us,published_peer_us,sm_mhz,sustained_us,sustained_sm_mhz\n";
  for (const CudaCeiling which :
       {CudaCeiling::kRead, CudaCeiling::kCopy, CudaCeiling::kBf16, CudaCeiling::kFp8}) {
    const bool memory = which == CudaCeiling::kRead || which == CudaCeiling::kCopy;
    const cuda::Ceiling& ceiling = measured_->ceiling(which);
    fmt::print(
        "ceiling {:<5} {:>7.2f} TB or TFLOP a second at {:.0f} MHz; sustained {:>7.2f} at {:.0f}\n",
        to_string(which), ceiling.per_second * 1e-12, ceiling.sm_hertz * 1e-6,
        ceiling.sustained_per_second * 1e-12, ceiling.sustained_sm_hertz * 1e-6);
    CudaBenchmark row{.op = "ceiling", .shape = std::string(to_string(which)), .format = "-"};
    (memory ? row.bytes : row.flops) = ceiling.per_second;
    add_csv(row,
            {.seconds = 1,
             .sm_hertz = ceiling.sm_hertz,
             .sustained_seconds = ceiling.per_second / ceiling.sustained_per_second,
             .sustained_sm_hertz = ceiling.sustained_sm_hertz},
            which, 1);
  }
  fmt::print(
      "{:<16} {:<16} {:<20} {:>6} {:>9} {:>9} {:>9} {:>7} {:>6} {:>7} {:>5} {:>9} {:>5} {:>8} "
      "{:>9}\n",
      "op", "shape", "format", "M", "us", "GB/s", "TFLOP/s", "binds", "share", "spread", "MHz",
      "sustained", "MHz", "target", "publ.peer");
}

void CudaBench::run(const CudaBenchmark& benchmark) {
  if (!wants(benchmark)) return;
  if (num_rows_ == 0) begin();
  const std::string wrong = benchmark.check();
  require(wrong.empty(), ErrorCode::kInternal, "{} does not agree with the reference: {}",
          benchmark.name(), wrong);
  const cuda::CallTimes times = cuda::time_calls(
      *backend_,
      {.call = benchmark.call, .num_sets = benchmark.num_sets, .num_replays = options_.rounds});
  const double memory_floor = benchmark.bytes / measured_->ceiling(benchmark.memory).per_second;
  const double tensor_floor = benchmark.flops / measured_->ceiling(benchmark.tensor).per_second;
  const CudaCeiling binding = memory_floor >= tensor_floor ? benchmark.memory : benchmark.tensor;
  const double share = std::max(memory_floor, tensor_floor) / times.seconds;
  fmt::print(
      "{:<16} {:<16} {:<20} {:>6} {:>9.2f} {:>9.0f} {:>9.1f} {:>7} {:>5.1f}% {:>6.1f}% {:>5.0f} "
      "{:>9.2f} {:>5.0f} {:>8} {:>9}\n",
      benchmark.op, benchmark.shape, benchmark.format, benchmark.m, times.seconds * 1e6,
      benchmark.bytes / times.seconds * 1e-9, benchmark.flops / times.seconds * 1e-12,
      to_string(binding), 100 * share, 100 * times.spread, times.sm_hertz * 1e-6,
      times.sustained_seconds * 1e6, times.sustained_sm_hertz * 1e-6, known(benchmark.target_us),
      known(benchmark.published_peer_us));
  std::fflush(stdout);
  ++num_rows_;
  add_csv(benchmark, times, binding, share);
}

void CudaBench::add_csv(const CudaBenchmark& benchmark, const cuda::CallTimes& times,
                        CudaCeiling binding, double share) {
  csv_ += fmt::format(
      "{:%Y-%m-%d},{},{},{},{},{},{},{},{:.3f},{:.4f},{:.1f},{:.2f},{},{:.4f},{},{},{:.0f},{:.3f},"
      "{:.0f}\n",
      fmt::gmtime(std::time(nullptr)), options_.commit, measured_->device.name,
      measured_->device.driver, benchmark.op, benchmark.shape, benchmark.format, benchmark.m,
      times.seconds * 1e6, times.spread, benchmark.bytes / times.seconds * 1e-9,
      benchmark.flops / times.seconds * 1e-12, to_string(binding), share,
      known(benchmark.target_us), known(benchmark.published_peer_us), times.sm_hertz * 1e-6,
      times.sustained_seconds * 1e6, times.sustained_sm_hertz * 1e-6);
}

void CudaBench::finish() {
  if (options_.rows.only_ceilings()) begin();
  write_csv(num_rows_, options_.rows, options_.csv_path, csv_);
}

void run_cuda_bench(const CudaBenchOptions& options) {
  CudaBench bench(options);
  bench_cuda_copy(bench);
  bench_cuda_quantize(bench);
  bench_cuda_swiglu(bench);
  bench_cuda_moe(bench);
  bench.finish();
}

}  // namespace dsv4::bench
