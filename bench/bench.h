// bench.h: the frame of the CPU benchmarks: ceilings, timing by rounds, rows of the result table.
//
// A row is the median over rounds; each round measures the ceilings first, so that a busy machine
// slows both. What an op file adds: its shapes, its inputs, its check (linear_bench.cc).
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "bench/row_filter.h"
#include "cpu/cpu_backend.h"
#include "tensor/buffer.h"

namespace dsv4::bench {

struct BenchOptions {
  RowFilter rows;
  std::string csv_path;                  // empty: none
  std::string nano_dir = "models/nano";  // the bundled model; empty: without
  CpuOptions cpu;
  int rounds = 9;         // at least 7
  bool cpu_time = false;  // count time on the cores: for a machine that is not idle
  std::int64_t bytes = std::int64_t{5} << 28;  // of distinct weights, and of the read ceiling
};

// What the machine gives at the moment, on the backend's number of threads.
class Ceilings {
 public:
  explicit Ceilings(const BenchOptions& options);
  double read_bytes_per_second();                               // over the whole buffer
  double read_bytes_per_second(std::span<const float> values);  // over these
  double copy_bytes_per_second();  // from one half to the other: bytes read and written
  double fma_flops_per_second();   // independent FMAs on registers, a multiply-add is two

 private:
  ThreadPool pool_;
  bool cpu_time_;
  std::int64_t targets_;  // the instruction set, as in the backend
  Buffer buffer_;
};

// One measurable thing.
struct Benchmark {
  std::string op;
  std::string shape;
  std::string format;
  std::int64_t m = 0;
  double bytes = 0;  // useful, a call
  // The memory ceiling that bytes are a share of: its name, and its measurement; empty: Ceilings'
  // reading.
  std::string memory = "read";
  std::function<double()> memory_bytes_per_second;
  double flops = 0;
  double reference_seconds = 0;  // of a call on the reference backend; 0: not measured
  // Empty if the output agrees with the reference on sampled rows, else what does not.
  std::function<std::string()> check;
  std::function<void(std::int64_t call_idx)> call;  // on input set call_idx, to be rotated

  std::string name() const;
};

class Bench {
 public:
  explicit Bench(const BenchOptions& options);

  const BenchOptions& options() const { return options_; }
  CpuBackend& backend() { return backend_; }
  Ceilings& ceilings() { return ceilings_; }
  bool wants(const Benchmark& benchmark) const;
  // Checks, measures, prints a row, before the first one the ceilings and the head of the table.
  // Throws std::runtime_error if the check fails.
  void run(const Benchmark& benchmark);
  // Measures the ceilings if they alone are wanted; writes the CSV file. Throws Error if no row
  // was wanted.
  void finish();

 private:
  void begin();

  BenchOptions options_;
  CpuBackend backend_;
  Ceilings ceilings_;
  std::string csv_;
  int num_rows_ = 0;
};

double median(std::vector<double> values);
// The end of a run: its rows to csv_path (empty: nowhere). Throws Error: kBadRequest if `rows` left
// none, kIo.
void write_csv(int num_rows, const RowFilter& rows, const std::string& csv_path,
               const std::string& csv);
// Seconds that `work` takes on num_threads threads: of the clock, or of the process on its cores
// divided by the threads.
double seconds_of(const std::function<void()>& work, int num_threads, bool cpu_time);

// Registered by the op files, called in order of this list.
void bench_linear(Bench& bench);
void bench_moe(Bench& bench);
void bench_quantize(Bench& bench);
void bench_model(Bench& bench);
// Only in builds with DSV4_GGML_DIR.
void bench_ggml(Bench& bench);
void bench_ggml_quantize(Bench& bench);

}  // namespace dsv4::bench
