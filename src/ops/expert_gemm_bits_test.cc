// The expert GEMMs give a row the same bits every time, alone and in batches of any size: those
// that take other kernels and other widths of tile, those with rows to spare, beside crowded
// experts.
#include <gtest/gtest.h>

#include <algorithm>

#include "base/math.h"
#include "testing/cases/expert_gemm_cases.h"
#include "testing/comparator.h"

namespace dsv4::testing {
namespace {

// Both GEMMs, NVFP4 and MXFP4, every output format.
std::vector<ExpertGemmCase> bits_cases(std::int64_t k, std::int64_t n) {
  std::vector<ExpertGemmCase> cases;
  for (const MatrixSpec& weights : {nvfp4_spec(), mxfp4_spec()}) {
    for (const MatrixSpec& out : {bf16_spec(), f32_spec(), nvfp4_spec(true)}) {
      for (const bool gate_up : {true, false}) {
        if (!gate_up && out.format == Format::kNvfp4) continue;
        ExpertGemmCase c;
        c.name = weights.name + (gate_up ? " gate_up " : " down ") + out.name;
        c.k = k;
        c.n = n;
        c.gate_up = gate_up;
        c.by_token = false;
        c.weight_spec = weights;
        c.out_spec = out;
        cases.push_back(c);
        if (gate_up) continue;
        c.name += " of whole chunks";  // come another way
        c.k = round_up(k, 64);
        cases.push_back(c);
      }
    }
  }
  return cases;
}

TEST_EACH_BACKEND(ExpertGemmBits, SameOnEveryRun) {
  // On a GPU copies, barriers and CTAs meet in another order in every run; on a host nothing but
  // threads does, and a run takes a thousand times as long.
  const bool on_host = backend.uses_host_memory();
  const int repeats = on_host ? 20 : 1000;
  for (ExpertGemmCase c : on_host ? bits_cases(1056, 144) : bits_cases(1568, 272)) {
    for (const RowCounts& rows : {RowCounts{3, 0, 5, 1}, few_rows_each(32), RowCounts{40, 9, 33},
                                  RowCounts{130, 70}, RowCounts{140, 130}}) {
      if (on_host && rows.size() != 4) continue;
      SCOPED_TRACE(c.name + ", " + std::to_string(rows.size()) + " experts, the last with " +
                   std::to_string(rows.back()) + " rows");
      c.expert_rows = rows;
      const ExpertGemmInputs in(c);
      DeviceExpertGemm gemm(backend, c, in);
      const HostMatrix want = gemm.run();
      for (int i = 1; i < repeats; ++i) {
        const HostMatrix got = gemm.run();
        ASSERT_EQ(got.data, want.data) << "run " << i;
        ASSERT_EQ(got.block_scales, want.block_scales) << "run " << i;
      }
    }
  }
}

// Rows of a batch by their numbers in a larger one, of each expert.
using Picks = std::vector<std::vector<std::int64_t>>;

// `count` rows of `rows`, from row `first` on, in steps that reach all of them.
std::vector<std::int64_t> pick(std::int64_t count, std::int64_t rows, std::int64_t first) {
  std::vector<std::int64_t> picked;
  for (std::int64_t i = 0; i < count; ++i) picked.push_back((first + i * 7) % rows);
  return picked;
}

struct Batch {
  ExpertGemmCase c;
  ExpertGemmInputs in;
  std::vector<std::int64_t> rows;  // of the larger batch
};

// `all` with the inputs `in`; `without_rows`: the same inputs, but for x.
Batch batch_of(const ExpertGemmCase& all, const ExpertGemmInputs& in,
               const ExpertGemmInputs& without_rows, const Picks& picks, std::int64_t spare_rows) {
  Batch batch{all, without_rows, {}};
  batch.c.spare_rows = spare_rows;
  batch.in.row_weights.clear();
  for (std::size_t e = 0; e < picks.size(); ++e) {
    batch.c.expert_rows[e] = static_cast<std::int64_t>(picks[e].size());
    for (const std::int64_t row : picks[e]) batch.rows.push_back(in.expert_offsets[e] + row);
    batch.in.expert_offsets[e + 1] = static_cast<std::int32_t>(batch.rows.size());
  }
  batch.in.x = HostMatrix(all.x_spec, batch.c.rows(), all.k);
  const std::int64_t x_bytes = data_bytes(all.x_spec.format, in.x.row_stride);
  for (std::size_t r = 0; r < batch.rows.size(); ++r) {
    std::copy_n(in.x.data.begin() + batch.rows[r] * x_bytes, x_bytes,
                batch.in.x.data.begin() + static_cast<std::int64_t>(r) * x_bytes);
    if (all.gate_up) batch.in.row_weights.push_back(in.row_weights[batch.rows[r]]);
  }
  if (all.gate_up) batch.in.row_weights.resize(batch.c.rows(), std::nanf(""));
  return batch;
}

void expect_same_rows(Backend& backend, const Batch& batch, const HostMatrix& want,
                      const std::shared_ptr<DeviceExperts>& experts) {
  const HostMatrix got = DeviceExpertGemm(backend, batch.c, batch.in, experts).run();
  for (std::size_t r = 0; r < batch.rows.size(); ++r) {
    const HostMatrix got_row = got.row(static_cast<std::int64_t>(r));
    const HostMatrix want_row = want.row(batch.rows[r]);
    ASSERT_EQ(got_row.data, want_row.data) << "row " << r;
    ASSERT_EQ(got_row.block_scales, want_row.block_scales) << "row " << r;
  }
}

TEST_EACH_BACKEND(ExpertGemmBits, SameAloneAndInBatchesOfAnySize) {
  const bool on_host = backend.uses_host_memory();
  std::vector<std::int64_t> sizes = {1, 2, 6, 7, 8, 9, 16, 17, 33, 64, 100};
  if (!on_host) {
    // Each width of tile that wgmma has, tiles of equal and of unequal width.
    for (std::int64_t width = 24; width <= 256; width += 8) sizes.push_back(width);
    for (const std::int64_t size : {41, 129, 200, 257, 300, 1000}) sizes.push_back(size);
  }
  for (ExpertGemmCase c : on_host ? bits_cases(96, 48) : bits_cases(1056, 144)) {
    SCOPED_TRACE(c.name);
    const std::int64_t rows = on_host ? 130 : 2000;
    c.expert_rows = {rows, rows, rows};
    const ExpertGemmInputs in(c);
    ExpertGemmInputs without_rows = in;
    without_rows.x = HostMatrix(c.x_spec, 0, c.k);
    const auto experts = std::make_shared<DeviceExperts>(backend, in.weights, in.up);
    const HostMatrix want = DeviceExpertGemm(backend, c, in, experts).run();
    for (const std::int64_t size : sizes) {
      // Alone; with room for many more; beside an expert of two and one of many rows.
      const std::pair<Picks, std::int64_t> batches[] = {
          {{{}, pick(size, rows, size), {}}, 0},
          {{{}, pick(size, rows, 3), {}}, 500},
          {{pick(2, rows, 5), pick(size, rows, 11), pick(rows / 5, rows, 0)}, 0}};
      for (const auto& [picks, spare_rows] : batches) {
        SCOPED_TRACE(std::to_string(size) + " rows, " + std::to_string(picks[2].size()) +
                     " beside, " + std::to_string(spare_rows) + " to spare");
        expect_same_rows(backend, batch_of(c, in, without_rows, picks, spare_rows), want, experts);
      }
    }
  }
}

// The same of many experts: five rows of each beside forty of each, and beside no others.
TEST_EACH_BACKEND(ExpertGemmBits, SameWithFewRowsOfManyExperts) {
  const bool on_host = backend.uses_host_memory();
  const int num_experts = on_host ? 3 : 32;
  for (ExpertGemmCase c : on_host ? bits_cases(96, 48) : bits_cases(1568, 272)) {
    SCOPED_TRACE(c.name);
    c.expert_rows = RowCounts(static_cast<std::size_t>(num_experts), 40);
    const ExpertGemmInputs in(c);
    ExpertGemmInputs without_rows = in;
    without_rows.x = HostMatrix(c.x_spec, 0, c.k);
    const auto experts = std::make_shared<DeviceExperts>(backend, in.weights, in.up);
    const HostMatrix want = DeviceExpertGemm(backend, c, in, experts).run();
    for (const std::int64_t size : {1, 4, 5, 6}) {
      Picks picks;
      for (int e = 0; e < num_experts; ++e) picks.push_back(pick(size, 40, e));
      for (const std::int64_t spare_rows : {0, 20}) {
        SCOPED_TRACE(std::to_string(size) + " rows each, " + std::to_string(spare_rows) +
                     " to spare");
        expect_same_rows(backend, batch_of(c, in, without_rows, picks, spare_rows), want, experts);
      }
    }
  }
}

}  // namespace
}  // namespace dsv4::testing
