#include "bench/bench.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <time.h>

#include <algorithm>
#include <cstdio>
#include <fstream>
#include <stdexcept>

#include "base/error.h"

namespace dsv4::bench {
double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  const std::size_t half = values.size() / 2;
  return values.size() % 2 == 1 ? values[half] : (values[half - 1] + values[half]) / 2;
}

double seconds_of(const std::function<void()>& work, int num_threads, bool cpu_time) {
  timespec start, end;
  const clockid_t clock = cpu_time ? CLOCK_PROCESS_CPUTIME_ID : CLOCK_MONOTONIC;
  clock_gettime(clock, &start);
  work();
  clock_gettime(clock, &end);
  const double seconds = static_cast<double>(end.tv_sec - start.tv_sec) +
                         1e-9 * static_cast<double>(end.tv_nsec - start.tv_nsec);
  return cpu_time ? seconds / num_threads : seconds;
}

std::string Benchmark::name() const { return fmt::format("{} {} {} M={}", op, shape, format, m); }

Bench::Bench(const BenchOptions& options)
    : options_(options), backend_(options.cpu), ceilings_(options) {}

bool Bench::wants(const Benchmark& benchmark) const {
  return options_.rows.wants(benchmark.op, benchmark.name());
}

void Bench::begin() {
  fmt::print(
      "{} threads; ceilings at the start: read {:.1f} GB/s, copy {:.1f} GB/s, FMA {:.0f} GFLOP/s\n",
      backend_.num_threads(), ceilings_.read_bytes_per_second() * 1e-9,
      ceilings_.copy_bytes_per_second() * 1e-9, ceilings_.fma_flops_per_second() * 1e-9);
  fmt::print("{:<12} {:<14} {:<10} {:>5} {:>11} {:>8} {:>6} {:<6} {:>9} {:>9} {:>8} {:>8}\n", "op",
             "shape", "format", "M", "us", "GB/s", "of", "memory", "GFLOP/s", "of FMA", "spread",
             "x ref");
  csv_ =
      "op,shape,format,m,threads,us,gb_per_s,memory,memory_share,gflop_per_s,fma_share,spread,"
      "x_ref\n";
}

void Bench::run(const Benchmark& benchmark) {
  if (!wants(benchmark)) return;
  if (num_rows_ == 0) begin();
  const std::string wrong = benchmark.check();
  if (!wrong.empty()) {
    throw std::runtime_error(
        fmt::format("{} does not agree with the reference: {}", benchmark.name(), wrong));
  }
  // Long enough a round that the clock and one interruption do not matter, at least two calls.
  std::int64_t call_idx = 0;
  std::vector<double> times, memory_shares, fma_shares;
  for (int round = 0; round < options_.rounds; ++round) {
    const double memory = benchmark.memory_bytes_per_second ? benchmark.memory_bytes_per_second()
                                                            : ceilings_.read_bytes_per_second();
    const double fma = ceilings_.fma_flops_per_second();
    std::vector<double> calls;
    double total = 0;
    while (calls.size() < 2 || (total < 0.1 && calls.size() < 1000)) {
      calls.push_back(seconds_of([&] { benchmark.call(call_idx++); }, backend_.num_threads(),
                                 options_.cpu_time));
      total += calls.back();
    }
    times.push_back(median(calls));
    memory_shares.push_back(benchmark.bytes / times.back() / memory);
    fma_shares.push_back(benchmark.flops / times.back() / fma);
  }
  const double seconds = median(times);
  const auto [fastest, slowest] = std::minmax_element(times.begin(), times.end());
  const double spread = (*slowest - *fastest) / seconds;
  const std::string times_reference =
      benchmark.reference_seconds > 0 ? fmt::format("{:.1f}", benchmark.reference_seconds / seconds)
                                      : std::string();
  fmt::print(
      "{:<12} {:<14} {:<10} {:>5} {:>11.1f} {:>8.2f} {:>5.0f}% {:<6} {:>9.1f} {:>8.0f}% {:>7.0f}% "
      "{:>8}\n",
      benchmark.op, benchmark.shape, benchmark.format, benchmark.m, seconds * 1e6,
      benchmark.bytes / seconds * 1e-9, 100 * median(memory_shares), benchmark.memory,
      benchmark.flops / seconds * 1e-9, 100 * median(fma_shares), 100 * spread, times_reference);
  std::fflush(stdout);
  ++num_rows_;
  csv_ += fmt::format("{},{},{},{},{},{:.2f},{:.3f},{},{:.4f},{:.2f},{:.4f},{:.3f},{}\n",
                      benchmark.op, benchmark.shape, benchmark.format, benchmark.m,
                      backend_.num_threads(), seconds * 1e6, benchmark.bytes / seconds * 1e-9,
                      benchmark.memory, median(memory_shares), benchmark.flops / seconds * 1e-9,
                      median(fma_shares), spread, times_reference);
}

void Bench::finish() {
  if (options_.rows.only_ceilings()) begin();
  write_csv(num_rows_, options_.rows, options_.csv_path, csv_);
}

void write_csv(int num_rows, const RowFilter& rows, const std::string& csv_path,
               const std::string& csv) {
  require(
      num_rows > 0 || rows.only_ceilings(), ErrorCode::kBadRequest,
      "no row {}has \"{}\" in its \"op shape format M=m\"; without OP and --filter all are shown",
      rows.ops.empty() ? "" : fmt::format("of {} ", fmt::join(rows.ops, ", ")), rows.text);
  if (csv_path.empty()) return;
  std::ofstream file(csv_path);
  file << csv;
  require(file.good(), ErrorCode::kIo, "cannot write {}", csv_path);
}

}  // namespace dsv4::bench
