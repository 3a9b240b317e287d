// cuda_bench.h: the frame of the CUDA benchmarks: ceilings measured in the same run, graph replays
// over more than the L2, rows as a share of the ceiling that binds.
//
// A row is the median over replays, with pauses and without (cuda/bench/timer.h). What an op file
// adds: its shapes, its inputs, its check (cuda_quantize_bench.cc). The CPU's frame: bench.h.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "bench/row_filter.h"
#include "cuda/bench/timer.h"
#include "ops/backend.h"

namespace dsv4::bench {

struct CudaBenchOptions {
  std::string device = "cuda";
  RowFilter rows;
  std::string csv_path;  // empty: none
  std::string commit;    // of the source, for the CSV
  int rounds = 9;        // replays a row, at least 7
};

// What may bind a row.
enum class CudaCeiling { kRead, kCopy, kBf16, kFp8 };

struct CudaBenchmark {
  std::string op;
  std::string shape;
  std::string format;
  std::int64_t m = 0;
  double bytes = 0;  // useful, read and written, a call
  double flops = 0;
  CudaCeiling memory = CudaCeiling::kRead;  // kCopy: the row writes about as much as it reads
  CudaCeiling tensor = CudaCeiling::kBf16;  // of `flops`
  std::int64_t num_sets = 1;                // input sets that calls rotate over, as sets_for()
  double target_us = 0;                     // what we want; 0: no target
  // What the op file's peer takes by figures published elsewhere, on another card of the same kind,
  // not measured here; 0: not known.
  double published_peer_us = 0;
  // Empty if the output agrees with the reference, on sampled rows where it is large, else what
  // does not. Runs before the row is timed.
  std::function<std::string()> check;
  // Queues the op on input set call_idx % num_sets; may not allocate or wait.
  std::function<void(std::int64_t call_idx, DeviceStream stream)> call;

  std::string name() const;
};

class CudaBench {
 public:
  // Throws Error: kUnsupportedDevice.
  explicit CudaBench(const CudaBenchOptions& options);
  ~CudaBench();

  Backend& backend() { return *backend_; }
  bool wants(const CudaBenchmark& benchmark) const;
  // How many input sets of `bytes` each make four times the L2, at least two.
  std::int64_t sets_for(double bytes) const;
  // Checks, measures, prints a row, before the first one the ceilings and the head of the table.
  // Throws Error kInternal if the check fails.
  void run(const CudaBenchmark& benchmark);
  // Measures the ceilings if they alone are wanted; writes the CSV file. Throws Error if no row
  // was wanted.
  void finish();

 private:
  struct Measured;
  void begin();
  void add_csv(const CudaBenchmark& benchmark, const cuda::CallTimes& times, CudaCeiling binding,
               double share);

  CudaBenchOptions options_;
  std::unique_ptr<Backend> backend_;
  std::unique_ptr<Measured> measured_;
  std::string csv_;
  int num_rows_ = 0;
};

// The CUDA benchmarks, all of them.
void run_cuda_bench(const CudaBenchOptions& options);

// Registered by the op files, called in order of this list.
void bench_cuda_copy(CudaBench& bench);
void bench_cuda_quantize(CudaBench& bench);
void bench_cuda_swiglu(CudaBench& bench);
void bench_cuda_moe(CudaBench& bench);

}  // namespace dsv4::bench
