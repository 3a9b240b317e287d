// A model and its cast to NVFP4 compute the same logits, bit for bit: decoded weights that are
// equal must also meet the same kernels in the same order. What the cast's files hold is tested in
// quantizer/.
#include <gtest/gtest.h>

#include <cstring>

#include "io/io_test_files.h"
#include "quantizer/quantize.h"
#include "runtime/nano_model.h"

namespace dsv4 {
namespace {

// Prefilled at once, then one by one: beyond the window, over ends of CSA and HCA groups.
constexpr std::size_t kPrefilled = 150, kTokens = 260;

std::vector<std::vector<float>> logits_of(const std::filesystem::path& dir,
                                          Activations activations) {
  ModelOpenOptions options = nano_options();
  options.model_dir = dir;
  options.model.activations = activations;
  LoadedModel model(options);
  const std::vector<TokenId> tokens = held_out_tokens(model.tokenizer(), kTokens);
  ModelSession session(model);
  std::vector<std::vector<float>> all;
  session.sync(std::span(tokens).first(kPrefilled));
  all.push_back(copy_logits(session));
  for (std::size_t t = kPrefilled; t < kTokens; ++t) {
    session.step(tokens[t]);
    all.push_back(copy_logits(session));
  }
  return all;
}

class CastOfNano : public testing::TestWithParam<Nvfp4Layout> {};

TEST_P(CastOfNano, ComputesTheSameLogits) {
  const TempDir dir;
  QuantizeJob job;
  job.in = nano_dir();
  job.out = dir / "cast";
  job.layout = GetParam();
  ASSERT_TRUE(quantize_checkpoint(job).report.total().tally.lossless());
  for (const Activations activations : {Activations::kA16, Activations::kA8}) {
    SCOPED_TRACE(activations == Activations::kA16 ? "a16" : "a8");
    const auto want = logits_of(nano_dir(), activations), got = logits_of(job.out, activations);
    ASSERT_EQ(got.size(), want.size());
    for (std::size_t t = 0; t < want.size(); ++t) {
      ASSERT_EQ(got[t].size(), want[t].size());
      ASSERT_EQ(std::memcmp(got[t].data(), want[t].data(), want[t].size() * sizeof(float)), 0)
          << "after token " << kPrefilled + t;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(EachLayout, CastOfNano,
                         testing::Values(Nvfp4Layout::kModelOpt, Nvfp4Layout::kCompressedTensors));

}  // namespace
}  // namespace dsv4
