// Registration of tests over all backends.
#include "testing/each_backend.h"

#include "backends/backends.h"

namespace dsv4::testing {
namespace {

class BackendTest : public ::testing::Test {
 public:
  BackendTest(std::string backend_name, BackendTestBody body)
      : backend_name_(std::move(backend_name)), body_(body) {}

  void TestBody() override {
    std::unique_ptr<Backend> backend;
    try {
      backend = open_backend(backend_name_);
    } catch (const Error& error) {
      if (error.code() == ErrorCode::kUnsupportedDevice) GTEST_SKIP() << error.what();
      throw;
    }
    try {
      body_(*backend);
    } catch (const Error& error) {
      if (error.code() == ErrorCode::kUnsupported) GTEST_SKIP() << error.what();
      throw;
    }
    EXPECT_EQ(backend->allocated_bytes(), 0) << "device memory left behind by the test";
  }

 private:
  std::string backend_name_;
  BackendTestBody body_;
};

}  // namespace

Backend& reference_backend() {
  static const std::unique_ptr<Backend> backend = open_backend("reference");
  return *backend;
}

bool register_each_backend(const char* suite, const char* name, const char* file, int line,
                           BackendTestBody body) {
  for (const std::string& backend_name : built_backends()) {
    const std::string suite_name = std::string(suite) + "/" + backend_name;
    ::testing::RegisterTest(
        suite_name.c_str(), name, nullptr, nullptr, file, line,
        [backend_name, body]() -> ::testing::Test* { return new BackendTest(backend_name, body); });
  }
  return true;
}

}  // namespace dsv4::testing
