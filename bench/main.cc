// dsv4_bench: times the ops of a backend, the CPU's or a GPU's, and prints each as a share of what
// the machine gives.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <exception>
#include <string>

#include "base/error.h"
#include "bench/bench.h"
#if defined(DSV4_BENCH_CUDA)
#include "bench/cuda_bench.h"
#endif

namespace dsv4::bench {
namespace {

void run_cpu_bench(const BenchOptions& options) {
  Bench bench(options);
  bench_linear(bench);
#if defined(DSV4_BENCH_GGML)
  bench_ggml(bench);
#endif
  bench_moe(bench);
  bench_quantize(bench);
#if defined(DSV4_BENCH_GGML)
  bench_ggml_quantize(bench);
#endif
  bench_model(bench);
  bench.finish();
}

void run_bench(const std::string& device, [[maybe_unused]] const std::string& commit,
               const BenchOptions& options) {
  if (device == "cpu") return run_cpu_bench(options);
  require(device == "cuda" || device.starts_with("cuda:"), ErrorCode::kBadRequest,
          "--device is \"{}\"; it must be cpu, cuda or cuda:N", device);
#if defined(DSV4_BENCH_CUDA)
  run_cuda_bench({.device = device,
                  .rows = options.rows,
                  .csv_path = options.csv_path,
                  .commit = commit,
                  .rounds = options.rounds});
#else
  fail(ErrorCode::kUnsupportedDevice,
       "this build measures cpu only, not {}; build it with CUDA and cuBLASLt", device);
#endif
}

}  // namespace
}  // namespace dsv4::bench

int main(int argc, char** argv) {
  CLI::App app("Times dsv4's ops against ceilings measured in the same run.");
  dsv4::bench::BenchOptions options;
  std::string device = "cpu", commit = "unknown";
  double gib = 1.25;
  app.add_option("--device", device, "cpu, or cuda or cuda:N with the rows of the CUDA backend")
      ->capture_default_str();
  app.add_option("op", options.rows.ops,
                 "only rows of these ops, such as quantize; ceilings: none, but the ceilings");
  app.add_option("--filter", options.rows.text, "only rows whose \"op shape format M=m\" has this");
  app.add_option("--csv", options.csv_path, "also write the table to this file");
  app.add_option("--commit", commit, "of the source, for the CSV (cuda)");
  app.add_option("--rounds", options.rounds, "measurements a row, their median is printed")
      ->check(CLI::Range(7, 1000))
      ->capture_default_str();
  app.add_option("--threads", options.cpu.num_threads, "0: all cores of the affinity mask (cpu)");
  app.add_option("--isa", options.cpu.instruction_set, "instruction set; default: the best (cpu)");
  app.add_flag("--cpu-time", options.cpu_time,
               "count time on the cores instead of the clock's, for a machine that is not idle");
  app.add_option("--nano", options.nano_dir, "directory of the bundled model; empty: without (cpu)")
      ->capture_default_str();
  app.add_option("--gib", gib, "distinct weights to rotate over; must exceed the caches (cpu)")
      ->check(CLI::Range(0.05, 64.0))
      ->capture_default_str();
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    if (error.get_exit_code() == 0) return app.exit(error);  // --help
    fmt::print(stderr, "dsv4_bench: {}\n", error.what());
    return 2;
  }
  options.bytes = static_cast<std::int64_t>(gib * 1024) << 20;
  try {
    dsv4::bench::run_bench(device, commit, options);
  } catch (const std::exception& error) {
    fmt::print(stderr, "dsv4_bench: {}\n", error.what());
    return 1;
  }
  return 0;
}
