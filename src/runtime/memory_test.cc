// A model costs its file and little more: weights stay in the mapped file, nothing is decoded or
// copied as a whole.
//
// DSV4_MEMORY_TEST_MB sets the size of the checkpoint (default 200; 2000 takes a minute or two).
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <string>

#include "backends/backends.h"
#include "checkpoint/bind.h"
#include "dsv4/types.h"
#include "kv/handle.h"
#include "model/model.h"
#include "testing/golden_copy.h"
#include "testing/random_checkpoint.h"
#include "testing/resident_memory.h"

namespace dsv4 {
namespace {

// Four tokens after a prompt long enough to use most experts of every layer.
void generate(Model& model) {
  const auto cache = model.make_cache(256, 1);
  SequenceCache sequence(*cache);
  std::vector<TokenId> tokens;
  for (TokenId id = 0; id < 24; ++id) tokens.push_back(id * 163 + 1);
  for (int step = 0; step < 4; ++step) {
    const auto count = static_cast<std::int64_t>(tokens.size());
    const StepSequence sequences[] = {{&sequence, sequence.length(), count}};
    const std::int32_t rows[] = {static_cast<std::int32_t>(count - 1)};
    model.forward(*cache, {tokens, sequences, rows});
    const auto* logits = static_cast<const float*>(model.logits().data);
    ASSERT_TRUE(std::all_of(logits, logits + model.logits().cols,
                            [](float logit) { return std::isfinite(logit); }));
    tokens = {
        static_cast<TokenId>(std::max_element(logits, logits + model.logits().cols) - logits)};
  }
}

TEST(Memory, AModelTakesItsFileAndAFifth) {
  if (kKeepsFreedMemory) GTEST_SKIP() << "a sanitizer's own memory would be measured";
  const char* megabytes = std::getenv("DSV4_MEMORY_TEST_MB");
  const std::int64_t wanted = (megabytes != nullptr ? std::atoll(megabytes) : 200) * 1'000'000;
  const TestFolder folder;
  const std::int64_t payload =
      write_random_checkpoint(folder.path(), scaled_flash_config(wanted), kOfficialFormats, 1);
  ASSERT_GT(payload, wanted * 3 / 4);
  if (!reset_peak_resident()) GTEST_SKIP() << "the peak of resident memory cannot be reset here";
  const std::int64_t base = peak_resident_bytes();

  const auto backend = open_backend("reference");
  const auto weights = load_checkpoint(folder.path());
  Model model(weights, *backend, {.activations = Activations::kA8, .max_step_tokens = 32});
  generate(model);
  const std::int64_t peak = peak_resident_bytes();
  RecordProperty("payload_bytes", std::to_string(payload));
  RecordProperty("peak_bytes", std::to_string(peak));
  EXPECT_LT(peak, payload + payload / 5) << "base " << base;
  // A test that touched little of the file would pass whatever a loader does with the rest.
  EXPECT_GT(peak, payload / 2);
}

}  // namespace
}  // namespace dsv4
