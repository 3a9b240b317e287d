// The CPU's cache rows are the reference's to the bit also where the contract leaves room: Hadamard
// sums that round, and values that are not finite.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "cpu/cpu_test_backends.h"
#include "testing/cases/kv_write_cases.h"
#include "testing/comparator.h"

namespace dsv4::testing {
namespace {

void expect_reference_bytes(const KvWriteCase& c, const KvWriteInputs& in) {
  const HostRows want = DeviceKvWrite(reference_backend(), c, in).run(reference_backend());
  for (const NamedBackend& variant : cpu_variants()) {
    SCOPED_TRACE(variant.name);
    const HostRows got = DeviceKvWrite(*variant.backend, c, in).run(*variant.backend);
    EXPECT_SAME_BITS(got.bytes, want.bytes);
  }
}

// At a width of 2 * 4^k the factor rounds, too.
TEST(CpuKvWrite, HadamardSumsThatRound) {
  for (const RowLayout& layout :
       {RowLayout{RowKind::kF32, 2}, RowLayout{RowKind::kF32, 128}, RowLayout{RowKind::kF32, 512},
        RowLayout{RowKind::kIndexerFp8, 128}, RowLayout{RowKind::kIndexerFp4, 128}}) {
    SCOPED_TRACE(layout.width);
    KvWriteCase c;
    c.layout = layout;
    c.hadamard = true;
    c.tokens = 40;
    expect_reference_bytes(c, KvWriteInputs(c));
  }
}

TEST(CpuKvWrite, ValuesThatAreNotFinite) {
  constexpr float kInf = std::numeric_limits<float>::infinity();
  std::vector<KvWriteCase> cases;
  for (const RowLayout& layout :
       {RowLayout{RowKind::kBf16, 192}, RowLayout{RowKind::kAttentionFp8, 192, 64},
        RowLayout{RowKind::kIndexerFp8, 192}, RowLayout{RowKind::kIndexerFp4, 192}}) {
    cases.emplace_back().layout = layout;
  }
  for (const RowRounding rounding : {RowRounding::kAttention, RowRounding::kIndexer}) {
    KvWriteCase& c = cases.emplace_back();
    c.layout = {RowKind::kF32, 192};
    c.rounding = rounding;
    c.rope_dim = 64;
  }
  for (KvWriteCase& c : cases) {
    SCOPED_TRACE(static_cast<int>(c.layout.kind));
    c.tokens = 12;
    c.all_slots = true;
    std::vector<float> values = KvWriteInputs::values(c);
    // Each row one such value, at the ends of blocks and of what fills a register.
    const std::size_t places[] = {0, 15, 16, 127, 128, 191};
    for (std::size_t row = 0; row < 12; ++row) {
      values[row * 192 + places[row % 6]] = row < 6 ? std::nanf("") : row % 2 == 0 ? kInf : -kInf;
    }
    KvWriteInputs in(c);
    in.x = HostMatrix(c.x_spec, c.tokens, 192, values);
    expect_reference_bytes(c, in);
  }
}

}  // namespace
}  // namespace dsv4::testing
