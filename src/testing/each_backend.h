// each_backend.h: one test body, run on every backend of the build, each on an instance of its own.
#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <string>

#include "ops/backend.h"
#include "testing/device_array.h"

namespace dsv4::testing {

// The judge: one instance for the whole program.
Backend& reference_backend();

// Runs one op to its end, with a workspace of just the size that it asks for, between guards.
template <class Params>
void run_op(Backend& backend, const Params& params) {
  const DeviceArray<std::byte> workspace(backend, backend.workspace_bytes(params));
  OpContext context;
  context.workspace = workspace.data();
  context.workspace_bytes = workspace.size();
  backend.run(params, context);
  backend.synchronize();
}

using BackendTestBody = void (*)(Backend& backend);

// Registers "suite/backend.name" for every built backend; the value: only a static initialiser.
bool register_each_backend(const char* suite, const char* name, const char* file, int line,
                           BackendTestBody body);

}  // namespace dsv4::testing

// TEST_EACH_BACKEND(Suite, Name) { ... `backend` is a dsv4::Backend& ... }
//
// kUnsupported (of the op, with the reason) and a device that is not there skip the test, every
// other Error fails it. Names on the command line: --gtest_filter='Suite/reference.Name'.
#define TEST_EACH_BACKEND(Suite, Name)                                          \
  static void Suite##_##Name##_each_backend(::dsv4::Backend& backend);          \
  [[maybe_unused]] static const bool Suite##_##Name##_registered =              \
      ::dsv4::testing::register_each_backend(#Suite, #Name, __FILE__, __LINE__, \
                                             &Suite##_##Name##_each_backend);   \
  static void Suite##_##Name##_each_backend([[maybe_unused]] ::dsv4::Backend& backend)
