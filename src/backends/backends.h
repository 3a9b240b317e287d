// backends.h: the backends of this build, and opening one by name. The only folder that knows them
// all.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "ops/backend.h"

namespace dsv4 {

// More than any host has cores.
inline constexpr int kMaxThreads = 4096;

// Names of the backends of this build, whether their devices are on this machine or not:
// "reference", "cpu", "cuda".
std::vector<std::string> built_backends();

// Names of the devices that open_backend opens here: "reference", "cpu", "cuda:0", ... Asks the
// CUDA driver, which takes tenths of a second.
std::vector<std::string> available_backends();

// Whether `name` may name a device, of this machine and build or of another: "reference", "cpu",
// "cuda", "cuda:N".
bool names_device(std::string_view name);

// A device of this machine, or a backend that has none.
struct DeviceReport {
  std::string name;  // as open_backend takes it
  bool usable = false;
  std::string text;  // what it is, or what is missing and what would help
};
// All backends that dsv4 knows, built or not.
std::vector<DeviceReport> device_reports();

// `name` as in available_backends(); "cuda" is "cuda:0". `num_threads`, the calling thread among
// them: of a backend that computes on the host; 0: all cores of the affinity mask. The reference
// uses one thread always. Throws Error: kUnsupportedDevice naming what is available or missing,
// kBadRequest for num_threads outside 0 .. kMaxThreads.
std::unique_ptr<Backend> open_backend(std::string_view name, int num_threads = 0);

}  // namespace dsv4
