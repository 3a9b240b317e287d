// What an op's check costs when it accepts: nothing but comparisons; and how it names a field.
#include "ops/op_checks.h"

#include <gtest/gtest.h>

#include <atomic>
#include <cstdlib>
#include <new>

#include "ops/compressor.h"
#include "ops/kv_write.h"
#include "ops/mhc.h"
#include "ops/moe.h"
#include "ops/row_checks.h"
#include "testing/refusals.h"
#include "testing/test_matrix.h"

namespace {
std::atomic<std::int64_t> num_allocations = 0;
}  // namespace

// Counts for the whole test program. Not inlined: GCC 12 would take malloc and delete for a
// mismatch.
__attribute__((noinline)) void* operator new(std::size_t bytes) {
  ++num_allocations;
  void* const data = std::malloc(bytes == 0 ? 1 : bytes);
  if (data == nullptr) throw std::bad_alloc();
  return data;
}
// A sanitizer would otherwise see its own nothrow form freed by the operators below.
__attribute__((noinline)) void* operator new(std::size_t bytes, const std::nothrow_t&) noexcept {
  ++num_allocations;
  return std::malloc(bytes == 0 ? 1 : bytes);
}
__attribute__((noinline)) void operator delete(void* data) noexcept { std::free(data); }
__attribute__((noinline)) void operator delete(void* data, std::size_t) noexcept {
  std::free(data);
}

namespace dsv4::testing {
namespace {

template <class Work>
std::int64_t allocations_of(const Work& work) {
  const std::int64_t before = num_allocations;
  work();
  return num_allocations - before;
}

TEST(OpChecks, TheCounterSeesAnAllocation) {
  EXPECT_EQ(allocations_of([] { ::operator delete(::operator new(8)); }), 1);
}

TEST(OpChecks, AMatrixOfAnyFormatIsAcceptedWithoutAllocating) {
  for (const MatrixSpec& spec : weight_specs()) {
    const HostMatrix m(spec, 130, 256);
    EXPECT_EQ(allocations_of([&] { check_matrix("Params.w", m.view(), kWeightFormats); }), 0)
        << spec.name;
  }
  for (const MatrixSpec& spec : activation_specs()) {
    const HostMatrix m(spec, 3, 256);
    EXPECT_EQ(allocations_of([&] { check_activations("Params.x", m.view(), kActivationFormats); }),
              0)
        << spec.name;
  }
}

TEST(OpChecks, RowsOfAnyKindAreAcceptedWithoutAllocating) {
  std::byte page[4096];
  for (const RowKind kind : {RowKind::kF32, RowKind::kBf16, RowKind::kAttentionFp8,
                             RowKind::kIndexerFp8, RowKind::kIndexerFp4}) {
    const PagedRowsView rows{page, {kind, 128, 64}, 4, 4096, 1};
    EXPECT_EQ(allocations_of([&] { check_rows("Params.rows", rows, "its own width", 128); }), 0);
  }
}

// The ops that put field names together from parts.
TEST(OpChecks, OpsWithNestedFieldsAcceptWithoutAllocating) {
  const float values[64] = {};
  float results[64] = {};
  std::uint8_t bytes[64] = {};
  const std::int32_t integers[8] = {};
  std::vector<MatrixView> experts(8, f32_matrix(values, 4, 8));
  ExpertGateUpParams gate_up;
  gate_up.x = f32_matrix(values, 2, 8);
  gate_up.gate_weights = gate_up.up_weights = experts.data();
  gate_up.num_experts = 8;
  gate_up.expert_offsets = integers;
  gate_up.out = f32_matrix(results, 2, 4);
  EXPECT_EQ(allocations_of([&] { check(gate_up); }), 0);

  const HostMatrix rows(nvfp4_spec(true), 2, 16);
  ExpertGateUpParams packed = gate_up;
  packed.gate_weights = packed.up_weights = nullptr;
  packed.packed = {values, Format::kNvfp4, 16, 8};
  packed.out = rows.view_on(bytes, bytes, results);
  packed.out_global_scales = values;
  EXPECT_EQ(allocations_of([&] { check(packed); }), 0);

  ExpertPackParams pack;
  pack.weights = pack.up_weights = experts.data();
  pack.num_experts = 8;
  pack.out = bytes;
  EXPECT_EQ(allocations_of([&] { check(pack); }), 0);

  ExpertDownParams down;
  down.x = f32_matrix(values, 2, 8);
  down.packed = {values, Format::kMxfp4, 4, 8};
  down.num_experts = 8;
  down.expert_offsets = integers;
  down.out = f32_matrix(results, 2, 4);
  EXPECT_EQ(allocations_of([&] { check(down); }), 0);

  HcHeadParams head;
  head.x = f32_matrix(values, 2, 8);
  head.copies = 2;
  head.mix_weight = f32_matrix(values, 2, 8);
  head.scale = head.base = values;
  head.out = f32_matrix(results, 2, 4);
  EXPECT_EQ(allocations_of([&] { check(head); }), 0);

  CompressorCommitParams commit;
  commit.tokens.compress_ratio = 4;
  commit.tokens.row_dim = 8;
  commit.tokens.values = commit.tokens.scores = f32_matrix(values, 2, 8);
  commit.tokens.ape = values;
  commit.tokens.positions = integers;
  commit.tokens.state_stride = compressor_state_floats(4, false, 8);
  EXPECT_EQ(allocations_of([&] { check(commit); }), 0);
}

TEST(OpChecks, FieldsAreNamedFromTheirStructDown) {
  const FieldPath params = "Params";
  const FieldPath weights = params.member("w");
  const FieldPath expert = weights.element(30);
  EXPECT_EQ(fmt::format("{}", expert.member("rows")), "Params.w[30].rows");
  EXPECT_EQ(fmt::format("{}", expert.element(0)), "Params.w[30][0]");
  EXPECT_EQ(fmt::format("{}", params), "Params");
}

TEST(OpChecks, ARefusalNamesTheWholePathAndTheRequirement) {
  const FieldPath params = "Params";
  MatrixView m;
  m.format = Format::kMxfp4;
  m.rows = 1;
  m.cols = m.row_stride = 64;
  m.block_cols = 16;
  m.data = m.block_scales = &m;
  EXPECT_EQ(refusal_of([&] { check_matrix(params.element(2), m, kWeightFormats); }),
            "Params[2].block_cols is 16, must be the quant block of MXFP4 = 32");
  EXPECT_EQ(refusal_of([&] { check_matrix(params.element(2), m, kPlainFormats); }),
            "Params[2].format is MXFP4, must be one of F32, BF16");
  m.block_scales = nullptr;
  m.block_cols = 32;
  m.scale_stride = 2;
  EXPECT_EQ(refusal_of([&] { check_matrix(params.element(2), m, kWeightFormats); }),
            "Params[2].block_scales is null, must point to the block scales");
}

}  // namespace
}  // namespace dsv4::testing
