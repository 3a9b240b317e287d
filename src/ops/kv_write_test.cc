// Writing cache rows on every backend: bytes and their places, skipped rows, the Hadamard
// transform.
#include "ops/kv_write.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/mman.h>

#include <cmath>
#include <map>

#include "testing/cases/kv_write_cases.h"
#include "testing/comparator.h"
#include "testing/refusals.h"
#include "testing/row_oracle.h"
#include "testing/tolerances.h"

namespace dsv4::testing {
namespace {

TEST_EACH_BACKEND(KvWrite, MatchesReferenceByteForByte) {
  for (const KvWriteCase& c : kv_write_cases()) {
    SCOPED_TRACE(c.name);
    const KvWriteInputs in(c);
    const HostRows got = DeviceKvWrite(backend, c, in).run(backend);
    const HostRows want = DeviceKvWrite(reference_backend(), c, in).run(reference_backend());
    EXPECT_SAME_BITS(got.bytes, want.bytes);
  }
}

// Poison everywhere except the bytes of the rows written.
std::vector<std::byte> pool_with(const HostRows& pool, const std::vector<std::int64_t>& slots,
                                 const std::vector<RowBytes>& row_bytes) {
  std::vector<std::byte> bytes(pool.bytes.size(), std::byte{kPoisonByte});
  for (std::size_t i = 0; i < slots.size(); ++i) {
    if (slots[i] < 0) continue;
    const std::int64_t page = slots[i] / pool.page_rows * pool.page_stride_bytes;
    const std::int64_t row = slots[i] % pool.page_rows;
    const auto data_size = static_cast<std::int64_t>(row_bytes[i].data.size());
    const auto scale_size = static_cast<std::int64_t>(row_bytes[i].scales.size());
    for (std::int64_t b = 0; b < data_size; ++b) {
      bytes[page + row * data_size + b] = std::byte{row_bytes[i].data[b]};
    }
    for (std::int64_t b = 0; b < scale_size; ++b) {
      bytes[page + pool.page_rows * data_size + row * scale_size + b] =
          std::byte{row_bytes[i].scales[b]};
    }
  }
  return bytes;
}

std::vector<float> row_of(const KvWriteCase& c, const KvWriteInputs& in, std::int64_t row) {
  const std::vector<float> x = in.x.values();
  return {x.begin() + row * c.layout.width, x.begin() + (row + 1) * c.layout.width};
}

// Data of all rows of a page, then their scales; nothing else is written: not skipped rows, not
// other slots, not the padding behind a page.
TEST_EACH_BACKEND(KvWrite, AttentionRowsAreByteExactInTheirPlaces) {
  const std::map<std::int64_t, std::size_t> row_bytes = {{512, 584}, {128, 200}, {96, 120}};
  for (const KvWriteCase& c : kv_write_cases()) {
    if (c.layout.kind != RowKind::kAttentionFp8) continue;
    SCOPED_TRACE(c.name);
    const KvWriteInputs in(c);
    std::vector<RowBytes> want;
    for (std::int64_t i = 0; i < in.num_rows; ++i) {
      want.push_back(expected_attention_row(row_of(c, in, i), c.layout.rope_dim));
      ASSERT_EQ(want.back().data.size() + want.back().scales.size(), row_bytes.at(c.layout.width));
    }
    EXPECT_SAME_BITS(DeviceKvWrite(backend, c, in).run(backend).bytes,
                     pool_with(in.rows, in.slots, want));
  }
}

// y_i = n^-1/2 sum over j of (-1)^popcount(i & j) x_j: the Sylvester matrix, element by element.
std::vector<double> hadamard_by_matrix(const std::vector<float>& x) {
  std::vector<double> y(x.size());
  for (std::size_t i = 0; i < x.size(); ++i) {
    for (std::size_t j = 0; j < x.size(); ++j) {
      y[i] += __builtin_popcountll(i & j) % 2 == 0 ? double{x[j]} : -double{x[j]};
    }
    y[i] /= std::sqrt(static_cast<double>(x.size()));
  }
  return y;
}

TEST_EACH_BACKEND(KvWrite, HadamardIsTheSylvesterMatrix) {
  for (const std::int64_t width : {1, 2, 4, 64, 128, 256, 512}) {
    SCOPED_TRACE(width);
    KvWriteCase c;
    c.layout = {RowKind::kF32, width};
    c.tokens = 3;
    c.all_slots = true;
    c.hadamard = true;
    const KvWriteInputs in(c);
    const HostRows got = DeviceKvWrite(backend, c, in).run(backend);
    for (std::int64_t row = 0; row < 3; ++row) {
      const std::vector<float> x = row_of(c, in, row);
      double magnitude = 0;
      for (float value : x) magnitude += std::fabs(double{value});
      magnitude /= std::sqrt(static_cast<double>(width));
      // One rounding a stage, one for the factor and one for its product.
      Tolerance tolerance;
      tolerance.absolute = (std::log2(static_cast<double>(width)) + 2) * 0x1p-24 * magnitude;
      EXPECT_CLOSE(got.get(row), hadamard_by_matrix(x), tolerance);
    }
  }
}

// Exact in FP32 at widths of 4^k, so the FP4 bytes are certain.
TEST_EACH_BACKEND(KvWrite, IndexQueriesAreHadamardThenFp4) {
  for (const KvWriteCase& c : kv_write_cases()) {
    if (c.layout.kind != RowKind::kIndexerFp4) continue;
    SCOPED_TRACE(c.name);
    const KvWriteInputs in(c);
    std::vector<RowBytes> want;
    for (std::int64_t i = 0; i < in.num_rows; ++i) {
      std::vector<float> x = row_of(c, in, i);
      if (c.hadamard) {
        const std::vector<double> y = hadamard_by_matrix(x);
        x.assign(y.begin(), y.end());
      }
      want.push_back(expected_fp4_row(x));
    }
    EXPECT_SAME_BITS(DeviceKvWrite(backend, c, in).run(backend).bytes,
                     pool_with(in.rows, in.slots, want));
  }
}

// A plain row holds what a row of the simulated kind would give back.
TEST_EACH_BACKEND(KvWrite, SimulatedRowsEqualStoredRows) {
  KvWriteCase plain;
  plain.layout = {RowKind::kF32, 512};
  plain.rounding = RowRounding::kAttention;
  plain.rope_dim = 64;
  KvWriteCase stored;
  stored.layout = {RowKind::kAttentionFp8, 512, 64};
  const KvWriteInputs plain_in(plain);
  const KvWriteInputs stored_in(stored);
  const HostRows a = DeviceKvWrite(backend, plain, plain_in).run(backend);
  const HostRows b = DeviceKvWrite(backend, stored, stored_in).run(backend);
  for (std::int64_t i = 0; i < plain_in.num_rows; ++i) {
    const std::int64_t slot = plain_in.slots[i];
    ASSERT_EQ(slot, stored_in.slots[i]);
    if (slot < 0) continue;
    EXPECT_EQ(a.get(slot), b.get(slot));
  }
}

// A skipped row may hold anything, NaN too.
TEST_EACH_BACKEND(KvWrite, AllRowsSkippedLeavesThePoolAlone) {
  KvWriteCase c = kv_write_cases()[0];
  KvWriteInputs in(c);
  std::fill(in.slots.begin(), in.slots.end(), -1);
  std::fill(in.x.data.begin(), in.x.data.end(), kPoisonByte);
  EXPECT_SAME_BITS(DeviceKvWrite(backend, c, in).run(backend).bytes, in.rows.bytes);
}

TEST_EACH_BACKEND(KvWrite, AloneOrInABatchTheSameBytes) {
  for (const KvWriteCase& c : kv_write_cases()) {
    SCOPED_TRACE(c.name);
    const KvWriteInputs in(c);
    const HostRows batch = DeviceKvWrite(backend, c, in).run(backend);
    DeviceKvWrite one_by_one(backend, c, in);
    KvWriteParams p = one_by_one.params;
    for (std::int64_t t = 0; t < c.tokens; ++t) {
      KvWriteInputs alone_in = in;
      alone_in.x = in.x.row(t);
      const DeviceMatrix x(backend, alone_in.x);
      p.x = x.view();
      const auto first = in.slots.begin() + t * c.rows_per_token;
      const DeviceArray<std::int64_t> slots(
          backend, std::vector<std::int64_t>(first, first + c.rows_per_token));
      p.slots = slots.data();
      run_op(backend, p);
    }
    EXPECT_SAME_BITS(one_by_one.rows.read().bytes, batch.bytes);
  }
}

TEST_EACH_BACKEND(KvWrite, SlotsBeyond32BitOffsets) {
  if (!backend.uses_host_memory()) GTEST_SKIP() << "needs memory that is mapped but not backed";
  constexpr std::int64_t kStride = std::int64_t{1} << 20;
  constexpr std::int64_t kPages = 2'200;
  void* const memory = mmap(nullptr, kPages * kStride, PROT_READ | PROT_WRITE,
                            MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED) GTEST_SKIP() << "no address space for a sparse mapping";
  KvWriteCase c;
  c.layout = {RowKind::kAttentionFp8, 512, 64};
  c.tokens = 1;
  KvWriteInputs in(c);
  in.slots = {2'150 * 4 + 3};
  DeviceKvWrite device(backend, c, in);
  device.params.rows.data = static_cast<std::byte*>(memory);
  device.params.rows.page_stride_bytes = kStride;
  device.params.rows.num_pages = kPages;
  run_op(backend, device.params);
  const RowBytes want = expected_attention_row(row_of(c, in, 0), 64);
  const auto* const row = static_cast<const std::uint8_t*>(memory) + 2'150 * kStride + 3 * 576;
  EXPECT_EQ(std::vector<std::uint8_t>(row, row + 576), want.data);
  munmap(memory, kPages * kStride);
}

TEST_EACH_BACKEND(KvWrite, RefusalsNameTheField) {
  KvWriteCase c;
  c.layout = {RowKind::kF32, 96};
  const KvWriteInputs in(c);
  const auto refusal = [&](auto change) -> std::string {
    DeviceKvWrite device(backend, c, in);
    change(device.params);
    return refusal_of([&] { device.run(backend); });
  };
  using P = KvWriteParams;
  using ::testing::HasSubstr;
  EXPECT_EQ(refusal([](P&) {}), "accepted");
  EXPECT_THAT(refusal([](P& p) { p.rows_per_token = 0; }), HasSubstr("rows_per_token is 0"));
  EXPECT_THAT(refusal([](P& p) { p.rows_per_token = 2; }), HasSubstr("x.cols is 96"));
  EXPECT_THAT(refusal([](P& p) { p.hadamard = true; }),
              HasSubstr("width is 96, must be a power of two"));
  EXPECT_THAT(refusal([](P& p) { p.x.format = Format::kE4m3; }), HasSubstr("x.format is FP8"));
  EXPECT_THAT(refusal([](P& p) {
                p.rounding = RowRounding::kAttention;
                p.rope_dim = 97;
              }),
              HasSubstr("rope_dim is 97"));
  EXPECT_THAT(refusal([](P& p) {
                p.rows.layout.width = p.x.cols = 48;
                p.rounding = RowRounding::kIndexer;
              }),
              HasSubstr("width is 48, must be a multiple of 32"));
  EXPECT_THAT(refusal([](P& p) {
                p.rows.layout = {RowKind::kIndexerFp4, 48};
                p.x.cols = 48;
              }),
              HasSubstr("width is 48, must be a multiple of 32"));
  EXPECT_THAT(refusal([](P& p) { p.rows.layout.width = 0; }), HasSubstr("layout.width is 0"));
  EXPECT_THAT(refusal([](P& p) { p.rows.page_rows = 0; }), HasSubstr("page_rows is 0"));
  EXPECT_THAT(refusal([](P& p) { p.rows.page_stride_bytes = 1535; }),
              HasSubstr("page_stride_bytes is 1535"));
  EXPECT_THAT(refusal([](P& p) { p.rows.data = nullptr; }), HasSubstr("rows.data is null"));
  EXPECT_THAT(refusal([](P& p) {
                p.slots = nullptr;
                p.rows.num_pages = 1;
              }),
              HasSubstr("x.rows is 5"));
  EXPECT_THAT(refusal([](P& p) {  // ten rows of five tokens into nine
                p.slots = nullptr;
                p.rows_per_token = 2;
                p.rows.layout.width = 48;
                p.rows.page_rows = p.rows.num_pages = 3;
              }),
              HasSubstr("x.rows is 10"));
}

}  // namespace
}  // namespace dsv4::testing
