// Opening a model: what is refused before anything is computed, and what is decided for the user.
#include "runtime/loaded_model.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <fstream>

#include "runtime/model_session.h"
#include "runtime/nano_model.h"

namespace dsv4 {
namespace {

// A copy of the bundled model without one file; removed at the end.
class NanoWithout {
 public:
  explicit NanoWithout(const std::string& missing)
      : dir_(std::filesystem::path(testing::TempDir()) /
             ("nano-without-" + missing + "-" + std::to_string(getpid()))) {
    std::filesystem::create_directories(dir_);
    for (const char* name :
         {"config.json", "generation_config.json", "model.safetensors", "tokenizer.json"}) {
      if (name != missing) std::filesystem::create_symlink(nano_dir() / name, dir_ / name);
    }
  }
  ~NanoWithout() {
    std::error_code ignored;
    std::filesystem::remove_all(dir_, ignored);
  }
  ModelOpenOptions options() const {
    ModelOpenOptions options = nano_options();
    options.model_dir = dir_;
    return options;
  }

 private:
  std::filesystem::path dir_;
};

// The code's name and the message of the refusal.
std::string refusal_of(const ModelOpenOptions& options) {
  try {
    const LoadedModel model(options);
  } catch (const Error& error) {
    return std::string(to_string(error.code())) + ": " + error.what();
  }
  return "no error";
}

template <class Change>
std::string error_with(Change change) {
  ModelOpenOptions options = nano_options();
  change(options);
  return error_of([&] { const LoadedModel model(options); });
}

TEST(LoadedModel, RefusesOptionsOutOfRange) {
  const std::string refused = name_of(ErrorCode::kBadRequest);
  for (const std::int64_t bad : {std::int64_t{-1}, std::int64_t{0}, std::int64_t{65537}}) {
    EXPECT_EQ(error_with([&](ModelOpenOptions& o) { o.model.max_step_tokens = bad; }), refused);
    EXPECT_EQ(error_with([&](ModelOpenOptions& o) { o.model.page_rows = bad; }), refused);
    EXPECT_EQ(error_with([&](ModelOpenOptions& o) { o.max_sessions = static_cast<int>(bad); }),
              refused);
  }
  EXPECT_EQ(error_with([](ModelOpenOptions& o) { o.kv_tokens = -1; }), refused);
  EXPECT_EQ(error_with([](ModelOpenOptions& o) { o.model.max_step_tokens = 1; }), "no error");
}

TEST(LoadedModel, RefusesFp8RowsThatShallBeExact) {
  EXPECT_EQ(error_with([](ModelOpenOptions& o) { o.model.simulate_rows = false; }),
            name_of(ErrorCode::kBadRequest));
}

// What is wrong, where, and what to do.
TEST(LoadedModel, NamesWhatIsMissingAndWhatToDo) {
  using testing::HasSubstr;
  ModelOpenOptions nowhere = nano_options();
  nowhere.model_dir = "no/such/model";
  EXPECT_THAT(refusal_of(nowhere),
              testing::AllOf(testing::StartsWith("not found: no/such/model"), HasSubstr("give")));
  for (const char* missing : {"config.json", "tokenizer.json"}) {
    const NanoWithout dir(missing);
    EXPECT_THAT(refusal_of(dir.options()),
                testing::AllOf(testing::StartsWith("not found: "), HasSubstr(missing),
                               HasSubstr(dir.options().model_dir.string()),
                               testing::ContainsRegex("give|copy")));
  }
  EXPECT_EQ(error_with([](ModelOpenOptions& o) { o.device = "abacus"; }),
            name_of(ErrorCode::kUnsupportedDevice));
}

TEST(LoadedModel, TokenizerIsNeededOnlyWhenAskedFor) {
  const NanoWithout dir("tokenizer.json");
  ModelOpenOptions options = dir.options();
  EXPECT_EQ(error_of([&] { const LoadedModel model(options); }), name_of(ErrorCode::kNotFound));
  options.with_tokenizer = false;
  const LoadedModel model(options);
  EXPECT_FALSE(model.has_tokenizer());
  EXPECT_EQ(error_of([&] { model.tokenizer(); }), name_of(ErrorCode::kBadRequest));
}

TEST(LoadedModel, EndTokensComeFromTheConfigWithoutGenerationConfig) {
  const NanoWithout dir("generation_config.json");
  const LoadedModel model(dir.options());
  EXPECT_EQ(model.generation().eos_ids, std::vector<int>{1});
  EXPECT_EQ(model.generation().temperature, 1.0);
  EXPECT_EQ(LoadedModel(nano_options()).generation().temperature, 0.7);
}

TEST(LoadedModel, CapacityIsAWholeContextUnlessGiven) {
  ModelOpenOptions options = nano_options();
  EXPECT_EQ(LoadedModel(options).max_session_tokens(), 4096);
  options.kv_tokens = 4095;
  EXPECT_EQ(LoadedModel(options).max_session_tokens(), 4095);
  // More than a context is of no use to one session.
  options.kv_tokens = std::int64_t{1} << 62;
  EXPECT_EQ(LoadedModel(options).max_session_tokens(), 4096);
}

std::int64_t resident_bytes() {
  std::ifstream file("/proc/self/statm");
  std::int64_t all = 0, resident = 0;
  file >> all >> resident;
  return resident * sysconf(_SC_PAGESIZE);
}

// Cache memory is taken for the largest case; only what is used may become resident. A quarter
// leaves room for a sanitizer's shadow.
TEST(LoadedModel, UnusedCacheIsNotResident) {
  ModelOpenOptions options = nano_options();
  options.max_sessions = 256;
  const std::int64_t before = resident_bytes();
  LoadedModel model(options);
  const std::int64_t taken = model.backend().allocated_bytes();
  ASSERT_GT(taken, std::int64_t{300'000'000});
  ModelSession session(model);
  session.step(0);
  EXPECT_LT(resident_bytes() - before, taken / 4);
}

}  // namespace
}  // namespace dsv4
