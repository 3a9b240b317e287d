// ggml's NVFP4 encoder and decoders (llama.cpp's) beside quantize_bench.cc, on as many threads.
// Optional: build_ggml.sh says how.
//
// Its encoder takes FP32 and has no global scale; its decoders give FP32. Bytes are those that it
// moves.
#include <fmt/format.h>
#include <ggml-cpu.h>
#include <ggml.h>

#include <algorithm>
#include <vector>

#include "base/thread_pool.h"
#include "bench/bench.h"
#include "testing/generators.h"

namespace dsv4::bench {
namespace {

constexpr std::int64_t kRows = 4096, kCols = 4096;

struct Row {
  const char* op;
  const char* label;
  ggml_type type;
  bool encode;
};

void bench_row(Bench& bench, const Row& row) {
  Benchmark b{row.op, fmt::format("{}x{}", kRows, kCols), row.label, kRows};
  if (!bench.wants(b)) return;
  ThreadPool pool(bench.options().cpu.num_threads);
  const std::size_t row_bytes = ggml_row_size(row.type, kCols);
  const auto count = std::max<std::int64_t>(1, bench.options().bytes / (kRows * kCols * 4));
  std::vector<float> values(static_cast<std::size_t>(count * kRows * kCols));
  std::vector<std::uint8_t> codes(static_cast<std::size_t>(count * kRows) * row_bytes);
  const std::vector<float> normal = testing::normal_values(5, kCols * 64, 0.1);
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = normal[i % normal.size()];
  const auto encode = [&](std::int64_t begin, std::int64_t end) {
    ggml_quantize_chunk(row.type, values.data() + begin * kCols,
                        codes.data() + static_cast<std::size_t>(begin) * row_bytes, 0, end - begin,
                        kCols, nullptr);
  };
  const auto decode = [&](std::int64_t begin, std::int64_t end) {
    ggml_get_type_traits(row.type)->to_float(
        codes.data() + static_cast<std::size_t>(begin) * row_bytes, values.data() + begin * kCols,
        (end - begin) * kCols);
  };
  if (!row.encode) pool.parallel_for(count * kRows, 64, encode);
  b.bytes = static_cast<double>(kRows) * (kCols * 4.0 + static_cast<double>(row_bytes));
  b.memory = "copy";
  b.memory_bytes_per_second = [&] { return bench.ceilings().copy_bytes_per_second(); };
  b.call = [&](std::int64_t call_idx) {
    const std::int64_t first = call_idx % count * kRows;
    pool.parallel_for(kRows, 16, [&](std::int64_t begin, std::int64_t end) {
      row.encode ? encode(first + begin, first + end) : decode(first + begin, first + end);
    });
  };
  b.check = [&]() -> std::string {
    b.call(0);
    std::vector<float> decoded(kCols);
    ggml_get_type_traits(row.type)->to_float(codes.data(), decoded.data(), kCols);
    for (std::size_t i = 0; i < decoded.size(); ++i) {
      if (!(std::abs(decoded[i] - normal[i]) <= 0.1f)) return "not its own values";
    }
    return {};
  };
  bench.run(b);
}

}  // namespace

void bench_ggml_quantize(Bench& bench) {
  // The tables of its FP16 conversions are made by the first backend or context.
  ggml_cpu_init();
  for (const Row& row : {Row{"ggml_enc", "NVFP4", GGML_TYPE_NVFP4, true},
                         Row{"ggml_dec", "NVFP4", GGML_TYPE_NVFP4, false},
                         Row{"ggml_dec", "MXFP4", GGML_TYPE_MXFP4, false}}) {
    bench_row(bench, row);
  }
}

}  // namespace dsv4::bench
