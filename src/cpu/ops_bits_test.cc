// The ops beside the matrix products give one set of bits on every instruction set and number of
// threads: every shared case, and shapes large enough to be split among the threads.
#include <gtest/gtest.h>

#include <type_traits>

#include "cpu/cpu_test_backends.h"
#include "testing/cases/attention_cases.h"
#include "testing/cases/compressor_cases.h"
#include "testing/cases/dense_attention_cases.h"
#include "testing/cases/indexer_cases.h"
#include "testing/cases/kv_write_cases.h"
#include "testing/cases/mhc_cases.h"
#include "testing/cases/norm_cases.h"
#include "testing/cases/rope_cases.h"
#include "testing/cases/router_cases.h"
#include "testing/cases/sampling_cases.h"
#include "testing/comparator.h"

namespace dsv4::testing {
namespace {

template <class T>
void append_bytes(std::vector<std::byte>& bytes, const std::vector<T>& values) {
  const auto* const first = reinterpret_cast<const std::byte*>(values.data());
  bytes.insert(bytes.end(), first, first + values.size() * sizeof(T));
}

// run(backend) gives an op's results as bytes; the first variant's are every variant's.
template <class Run>
void expect_one_result(const std::string& name, const Run& run) {
  static const std::vector<NamedBackend> variants = cpu_variants();
  const std::vector<std::byte> want = run(*variants.front().backend);
  for (const NamedBackend& variant : variants) {
    SCOPED_TRACE(name + " on " + variant.name);
    const std::vector<std::byte> got = run(*variant.backend);
    EXPECT_TRUE(compare_bytes(got.data(), got.size(), want.data(), want.size(), 1));
  }
}

TEST(CpuOps, NormRopeAndKvWriteHaveOneResult) {
  std::vector<NormCase> norms = norm_cases();
  norms.push_back({"many_rows", 70, 1000});
  for (const NormCase& c : norms) {
    const NormInputs in = make_inputs(c);
    expect_one_result(c.name, [&](Backend& backend) {
      std::vector<std::byte> bytes;
      append_bytes(bytes, run_norm(backend, c, in).data);
      return bytes;
    });
  }
  for (const RopeCase& c : rope_cases()) {
    const HostMatrix in = make_inputs(c);
    expect_one_result(c.name, [&](Backend& backend) {
      std::vector<std::byte> bytes;
      append_bytes(bytes, run_rope(backend, c, in).data);
      return bytes;
    });
  }
  for (KvWriteCase c : kv_write_cases()) {
    c.tokens *= 9;
    const KvWriteInputs in(c);
    expect_one_result(
        c.name, [&](Backend& backend) { return DeviceKvWrite(backend, c, in).run(backend).bytes; });
  }
}

TEST(CpuOps, RouterHasOneResult) {
  std::vector<RouterCase> cases = router_cases();
  cases.push_back({"one_token_of_many_experts", 1, 2048, 256, 6});
  cases.push_back({"odd_width", 70, 333, 100, 6});
  for (const RouterCase& c : cases) {
    const RouterInputs in = make_inputs(c);
    expect_one_result(c.name, [&](Backend& backend) {
      const RouterOutputs out = run_router(backend, c, in);
      std::vector<std::byte> bytes;
      append_bytes(bytes, out.expert_idx);
      append_bytes(bytes, out.expert_weights);
      return bytes;
    });
  }
}

TEST(CpuOps, HyperConnectionsHaveOneResult) {
  std::vector<MhcCase> cases = mhc_cases();
  cases.push_back({"one_wide_token", 1, 4096});
  cases.push_back({"two_token_tiles", 60, 320});
  for (const MhcCase& c : cases) {
    const MhcInputs in = make_inputs(c);
    expect_one_result(c.name, [&](Backend& backend) {
      const HcPreOutputs pre = run_hc_pre(backend, c, in);
      std::vector<std::byte> bytes;
      append_bytes(bytes, pre.out.data);
      append_bytes(bytes, pre.post);
      append_bytes(bytes, pre.comb);
      append_bytes(bytes, run_hc_post(backend, c, in).data);
      append_bytes(bytes, run_hc_head(backend, c, in).data);
      return bytes;
    });
  }
}

// Of few tokens the row pieces and heads are shared among the threads, of many the tokens.
TEST(CpuOps, AttentionHasOneResult) {
  std::vector<AttentionCase> cases = attention_cases();
  AttentionCase large;
  large.name = "one_token_in_pieces";
  large.kind = RowKind::kAttentionFp8;
  large.head_dim = 512;
  large.num_heads = 9;
  large.window = 128;
  large.ring_rows = 131;
  large.compress_ratio = 4;
  large.positions = {701};
  cases.push_back(large);
  large.name = "more_rows_than_a_block";
  large.head_dim = 128;
  large.positions = {4 * 1400 + 3};
  cases.push_back(large);
  for (const AttentionCase& c : cases) {
    const AttentionInputs in(c);
    expect_one_result(c.name, [&](Backend& backend) {
      const AttentionResult out = run_attention(backend, c, in);
      std::vector<std::byte> bytes;
      append_bytes(bytes, out.out);
      append_bytes(bytes, out.lse);
      return bytes;
    });
  }
}

TEST(CpuOps, DenseAttentionHasOneResult) {
  for (const DenseAttentionCase& c : dense_attention_cases()) {
    const DenseAttentionInputs in(c);
    expect_one_result(c.name, [&](Backend& backend) {
      const DenseAttentionResult out = DeviceDenseAttention(backend, c, in).run(backend);
      std::vector<std::byte> bytes;
      append_bytes(bytes, out.out);
      append_bytes(bytes, out.lse);
      return bytes;
    });
  }
}

TEST(CpuOps, IndexerHasOneResult) {
  std::vector<IndexerCase> cases = indexer_cases();
  IndexerCase large;
  large.name = "one_token_of_more_rows_than_a_tile";
  large.num_heads = 2;
  large.width = 32;
  large.row_kind = large.query_kind = RowKind::kIndexerFp4;
  large.page_rows = 192;
  large.index_top_k = 500;
  large.positions = {4 * 8700};
  cases.push_back(large);
  for (const IndexerCase& c : cases) {
    const IndexerInputs in(c);
    expect_one_result(c.name, [&](Backend& backend) {
      const IndexerResult out = run_indexer(backend, c, in);
      std::vector<std::byte> bytes;
      append_bytes(bytes, out.row_indices);
      append_bytes(bytes, out.index_scores);
      return bytes;
    });
  }
}

TEST(CpuOps, CompressorHasOneResult) {
  for (const CompressorCase& c : compressor_cases()) {
    expect_one_result(c.name, [&](Backend& backend) {
      CompressorRun run(backend, c, 2);
      run.step({{0, 0, 130}, {1, 0, 5}});
      run.step({{1, 5, 124}, {0, 130, 1}});
      std::vector<std::byte> bytes;
      for (const auto& row : run.rows()) append_bytes(bytes, row.second);
      append_bytes(bytes, run.states());
      return bytes;
    });
  }
}

TEST(CpuOps, SamplingHasOneResult) {
  for (const SamplingCase& c : sampling_cases()) {
    const HostMatrix logits = make_inputs(c);
    expect_one_result(c.name, [&](Backend& backend) {
      const SamplingOutputs out = run_sampling(backend, c.rows, logits);
      std::vector<std::byte> bytes;
      append_bytes(bytes, out.tokens);
      append_bytes(bytes, out.logprobs);
      return bytes;
    });
  }
}

// Selection over several tiles of scores, against a sort of all of them.
TEST(CpuIndexer, SelectsOverManyTiles) {
  CpuBackend backend({1, ""});
  IndexerCase c;
  c.num_heads = 1;
  c.width = 32;
  c.page_rows = 7;  // tiles do not end where pages do
  c.index_top_k = 300;
  c.whole_numbers = true;  // many ties
  c.positions = {4 * 20000, 4 * 300 - 1, 4 * 301 - 1};
  const IndexerInputs in(c);
  const IndexerResult got = run_indexer(backend, c, in);
  const IndexerResult want = run_indexer(reference_backend(), c, in);
  EXPECT_EQ(got.row_indices, want.row_indices);
  EXPECT_SAME_BITS(got.index_scores, want.index_scores);
}

}  // namespace
}  // namespace dsv4::testing
