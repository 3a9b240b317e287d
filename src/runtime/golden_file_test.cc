// Golden files that are damaged or belong to another model: what must be refused before anything is
// computed, so that a check that cannot happen is never taken for one that passed.
#include "runtime/golden_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>

#include "base/error.h"
#include "testing/golden_copy.h"

namespace dsv4 {
namespace {

using testing::HasSubstr;

// Runs `action` and returns the Error that it throws.
template <class Action>
Error error_of(const Action& action) {
  try {
    action();
  } catch (const Error& error) {
    return error;
  }
  ADD_FAILURE() << "no error";
  return Error(ErrorCode::kIo, "");
}

ModelConfig golden_config() { return load_model_config(golden_dir("flash-bf16")); }

Error open_error(const GoldenCopy& copy, const ModelConfig& config = golden_config()) {
  const TestFolder folder;
  const std::filesystem::path path = copy.write(folder.path());
  return error_of([&] { GoldenFile::open(path, config); });
}

TEST(GoldenFile, ReadsWhatWasRecorded) {
  const GoldenFile golden =
      GoldenFile::open(golden_dir("flash-bf16") / "golden-fp32.safetensors", golden_config());
  ASSERT_EQ(golden.prompts().size(), 6u);
  EXPECT_EQ(golden.layered_prompt().num_tokens(), 147);
  EXPECT_EQ(golden.layered_prompt().num_prefilled, 121);
  EXPECT_EQ(golden.layered_prompt().num_decoded(), 26);
  EXPECT_EQ(golden.layered_prompt().num_prefill_rows(), 32);
  EXPECT_TRUE(golden.has_sublayer_outputs());
  ASSERT_NE(golden.draft_prompt(), nullptr);
  EXPECT_EQ(golden.draft_prompt()->name, "short");
  EXPECT_EQ(golden.draft_prompt()->num_prefill_rows(), 7);
  EXPECT_EQ(golden.values("short.mtp_logits").size(), 7u * 256u);

  const GoldenFile rounded =
      GoldenFile::open(golden_dir("flash-official") / "golden-a8.safetensors",
                       load_model_config(golden_dir("flash-official")));
  EXPECT_FALSE(rounded.has_sublayer_outputs());
  EXPECT_EQ(rounded.draft_prompt(), nullptr);
}

TEST(GoldenFile, RefusesAMissingTensorByName) {
  for (const char* name : {"mid.layers.2.streams_out", "long.decode_logits", "one.prefill_logits",
                           "mid.layers.3.ffn_out"}) {
    GoldenCopy copy("flash-bf16", "fp32");
    copy.remove_tensors([&](const std::string& tensor) { return tensor == name; });
    const Error error = open_error(copy);
    EXPECT_EQ(error.code(), ErrorCode::kBadCheckpoint);
    EXPECT_THAT(error.what(), HasSubstr(name));
  }
}

TEST(GoldenFile, RefusesATensorThatNothingWouldCompare) {
  GoldenCopy copy("flash-bf16", "qat");
  copy.tensors.push_back(copy.tensor("one.decode_logits"));
  copy.tensors.back().name = "other.decode_logits";
  EXPECT_EQ(open_error(copy).code(), ErrorCode::kBadCheckpoint);
}

TEST(GoldenFile, RefusesAnotherDtype) {
  GoldenCopy copy("flash-bf16", "qat");
  copy.tensor("short.mtp_logits").dtype = DType::kI32;
  const Error error = open_error(copy);
  EXPECT_EQ(error.code(), ErrorCode::kBadCheckpoint);
  EXPECT_THAT(error.what(), HasSubstr("short.mtp_logits is I32, must be F32"));
}

TEST(GoldenFile, RefusesAnotherShapeOfTheSameSize) {
  GoldenCopy copy("flash-bf16", "qat");
  copy.tensor("mid.layers.1.streams_out").shape = {147, 2, 256};
  const Error error = open_error(copy);
  EXPECT_EQ(error.code(), ErrorCode::kBadRequest);
  EXPECT_THAT(error.what(), HasSubstr("[147, 2, 256]"));
}

TEST(GoldenFile, RefusesTheValuesOfAnotherModel) {
  const auto code_with = [](auto&& change) {
    ModelConfig config = golden_config();
    change(config);
    return error_of([&] {
             GoldenFile::open(golden_dir("flash-bf16") / "golden-fp32.safetensors", config);
           })
        .code();
  };
  EXPECT_EQ(code_with([](ModelConfig& c) { c.hidden_size = 256; }), ErrorCode::kBadRequest);
  EXPECT_EQ(code_with([](ModelConfig& c) { c.hc_copies = 2; }), ErrorCode::kBadRequest);
  EXPECT_EQ(code_with([](ModelConfig& c) { c.vocab_size = 512; }), ErrorCode::kBadRequest);
  EXPECT_EQ(code_with([](ModelConfig& c) { c.num_layers = 3; }), ErrorCode::kBadRequest);
  EXPECT_EQ(code_with([](ModelConfig& c) { c.num_layers = 5; }), ErrorCode::kBadCheckpoint);
  EXPECT_EQ(code_with([](ModelConfig& c) { c.vocab_size = 200; }), ErrorCode::kBadRequest);
}

TEST(GoldenFile, RefusesAMissingFile) {
  const TestFolder folder;
  GoldenCopy copy("flash-bf16", "qat");
  const std::filesystem::path path = copy.write(folder.path());
  std::filesystem::remove(folder.path() / kGoldenPromptsFileName);
  const Error error = error_of([&] { GoldenFile::open(path, golden_config()); });
  EXPECT_EQ(error.code(), ErrorCode::kNotFound);
  EXPECT_THAT(error.what(), HasSubstr("prompts.json"));
  copy.write(folder.path());
  std::filesystem::remove(path);
  EXPECT_EQ(error_of([&] { GoldenFile::open(path, golden_config()); }).code(),
            ErrorCode::kNotFound);
}

TEST(GoldenFile, RefusesPromptsThatAreNone) {
  for (const char* json :
       {"", "{", "[]", "1", R"({"mid": 1})", R"({"mid": {"tokens": [1, 2]}})",
        R"({"mid": {"prefill": 1}})", R"({"mid": {"tokens": 5, "prefill": 1}})",
        R"({"mid": {"tokens": ["1", 2], "prefill": 1}})",
        R"({"mid": {"tokens": [-1, 2], "prefill": 1}})",
        R"({"mid": {"tokens": [1.5, 2], "prefill": 1}})",
        R"({"mid": {"tokens": [1, 2], "prefill": 0}})",
        R"({"mid": {"tokens": [1, 2], "prefill": 2}})", R"({"mid": {"tokens": [], "prefill": 0}})",
        R"({"mid": {"tokens": [1, 2], "prefill": 18446744073709551615}})",
        R"({"mid": {"tokens": [1, 2], "prefill": -1}})",
        R"({"mid": {"tokens": [1, 2], "prefill": 1}, "mid": {"tokens": [1, 2], "prefill": 1}})"}) {
    SCOPED_TRACE(json);
    const Error error = error_of([&] { parse_golden_prompts(json, "prompts.json", 256); });
    EXPECT_EQ(error.code(), ErrorCode::kBadCheckpoint);
    EXPECT_THAT(error.what(), HasSubstr("prompts.json"));
  }
  const auto last_id =
      parse_golden_prompts(R"({"a": {"tokens": [0, 255], "prefill": 1}})", "p", 256);
  EXPECT_EQ(last_id.at(0).tokens, (std::vector<TokenId>{0, 255}));
  for (const char* json : {R"({"a": {"tokens": [0, 256], "prefill": 1}})",
                           R"({"a": {"tokens": [4294967296, 1], "prefill": 1}})"}) {
    EXPECT_EQ(error_of([&] { parse_golden_prompts(json, "p", 256); }).code(),
              ErrorCode::kBadRequest);
  }
}

TEST(GoldenFile, RefusesPromptsWithoutTheOneOfTheLayers) {
  GoldenCopy copy("flash-bf16", "qat");
  copy.remove_prompt("mid");
  const Error error = open_error(copy);
  EXPECT_EQ(error.code(), ErrorCode::kBadCheckpoint);
  EXPECT_THAT(error.what(), HasSubstr("no prompt \"mid\""));
}

}  // namespace
}  // namespace dsv4
