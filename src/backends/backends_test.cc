// Opening backends by name, with a number of threads.
#include "backends/backends.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/thread_pool.h"
#include "cpu/cpu_backend.h"

namespace dsv4 {
namespace {

int num_threads_of(int num_threads) {
  return dynamic_cast<CpuBackend&>(*open_backend("cpu", num_threads)).num_threads();
}

TEST(Backends, AllThatAreNamedOpen) {
  for (const std::string& name : available_backends()) {
    EXPECT_EQ(open_backend(name)->name(), name);
    EXPECT_EQ(open_backend(name, 1)->name(), name);
  }
}

TEST(Backends, TheCpuUsesAsManyThreadsAsItIsGiven) {
  EXPECT_EQ(num_threads_of(1), 1);
  EXPECT_EQ(num_threads_of(3), 3);
  EXPECT_EQ(num_threads_of(0), usable_cores());
}

TEST(Backends, RefusalsNameWhatThereIs) {
  const auto refused = [](std::string_view name, int num_threads) {
    try {
      open_backend(name, num_threads);
    } catch (const Error& error) {
      return std::string(to_string(error.code())) + ": " + error.what();
    }
    return std::string("no error");
  };
  using testing::HasSubstr;
  using testing::StartsWith;
  EXPECT_THAT(refused("abacus", 0), StartsWith("unsupported device"));
  EXPECT_THAT(refused("abacus", 0), HasSubstr("reference, cpu"));
  for (const std::string& name : available_backends()) {
    for (const int bad : {-1, kMaxThreads + 1}) {
      EXPECT_THAT(refused(name, bad), StartsWith("bad request: num_threads is"));
    }
  }
}

}  // namespace
}  // namespace dsv4
