// Opening backends by name, with a number of threads.
#include "backends/backends.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

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

std::string refused(std::string_view name, int num_threads = 0) {
  try {
    open_backend(name, num_threads);
  } catch (const Error& error) {
    return std::string(to_string(error.code())) + ": " + error.what();
  }
  return "no error";
}

using testing::HasSubstr;
using testing::StartsWith;

TEST(Backends, RefusalsNameWhatThereIs) {
  EXPECT_THAT(refused("abacus", 0), StartsWith("unsupported device"));
  EXPECT_THAT(refused("abacus", 0), HasSubstr("reference, cpu"));
  for (const std::string& name : available_backends()) {
    for (const int bad : {-1, kMaxThreads + 1}) {
      EXPECT_THAT(refused(name, bad), StartsWith("bad request: num_threads is"));
    }
  }
}

TEST(Backends, CudaOpensWhereADeviceIsAndElseSaysWhatIsMissing) {
  const std::vector<std::string> names = available_backends();
  const bool usable = std::find(names.begin(), names.end(), "cuda:0") != names.end();
  for (const std::string_view name : {"cuda", "cuda:0"}) {
    if (usable) {
      EXPECT_EQ(open_backend(name)->name(), "cuda:0");
    } else {
      EXPECT_THAT(refused(name), StartsWith("unsupported device: cuda:0 cannot be used: "));
    }
  }
  EXPECT_THAT(refused("cuda:2147483647"), StartsWith("unsupported device: "));
}

TEST(Backends, NamesThatOnlyResembleCudaAreUnknown) {
  for (const std::string_view name :
       {"cud", "cuda:", "cuda0", "cuda:x", "cuda:-1", "cuda:+1", "cuda:0 ", "cuda:0,1", "cuda: 0",
        "cuda:2147483648", "CUDA"}) {
    EXPECT_THAT(refused(name), StartsWith("unsupported device: no device \"")) << name;
  }
}

TEST(Backends, NamesOfDevicesAreToldFromOtherWordsWhateverIsHere) {
  for (const std::string_view name :
       {"reference", "cpu", "cuda", "cuda:0", "cuda:07", "cuda:2147483648"}) {
    EXPECT_TRUE(names_device(name)) << name;
  }
  for (const std::string_view name : {"", "gpu", "cpu:0", "reference:0", "cud", "cuda:", "cuda0",
                                      "cuda:x", "cuda:-1", "cuda:0 ", "cuda:0,1", "CUDA"}) {
    EXPECT_FALSE(names_device(name)) << name;
  }
}

TEST(Backends, EveryBackendIsReportedAsUsableOrWithWhatIsMissing) {
  std::vector<std::string> usable;
  bool cuda = false;
  for (const DeviceReport& report : device_reports()) {
    EXPECT_NE(report.text, "") << report.name;
    if (report.usable) usable.push_back(report.name);
    if (report.name.starts_with("cuda")) cuda = true;
  }
  EXPECT_EQ(usable, available_backends());
  EXPECT_TRUE(cuda);
}

}  // namespace
}  // namespace dsv4
