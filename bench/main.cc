// dsv4_bench: times the ops of the CPU backend and prints each as a share of what the machine
// gives.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <exception>

#include "bench/bench.h"

int main(int argc, char** argv) {
  CLI::App app("Times the ops of dsv4's CPU backend against measured ceilings.");
  dsv4::bench::BenchOptions options;
  double gib = 1.25;
  app.add_option("--filter", options.filter, "only rows whose \"op shape format M=m\" has this");
  app.add_option("--csv", options.csv_path, "also write the table to this file");
  app.add_option("--threads", options.cpu.num_threads, "0: all cores of the affinity mask");
  app.add_option("--isa", options.cpu.instruction_set, "instruction set; default: the best");
  app.add_option("--rounds", options.rounds, "measurements a row, their median is printed")
      ->check(CLI::Range(7, 1000))
      ->capture_default_str();
  app.add_flag("--cpu-time", options.cpu_time,
               "count time on the cores instead of the clock's, for a machine that is not idle");
  app.add_option("--nano", options.nano_dir, "directory of the bundled model; empty: without")
      ->capture_default_str();
  app.add_option("--gib", gib, "distinct weights to rotate over; must exceed the caches")
      ->check(CLI::Range(0.05, 64.0))
      ->capture_default_str();
  CLI11_PARSE(app, argc, argv);
  options.bytes = static_cast<std::int64_t>(gib * 1024) << 20;
  try {
    dsv4::bench::Bench bench(options);
    bench.begin();
    dsv4::bench::bench_linear(bench);
#if defined(DSV4_BENCH_GGML)
    dsv4::bench::bench_ggml(bench);
#endif
    dsv4::bench::bench_moe(bench);
    dsv4::bench::bench_model(bench);
    bench.finish();
  } catch (const std::exception& error) {
    fmt::print(stderr, "dsv4_bench: {}\n", error.what());
    return 1;
  }
  return 0;
}
