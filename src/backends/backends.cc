#include "backends/backends.h"

#include <charconv>
#include <optional>

#include "base/error.h"
#include "base/thread_pool.h"
#include "cpu/cpu_backend.h"
#include "reference/reference_backend.h"
#ifdef DSV4_WITH_CUDA
#include "cuda/cuda_backend.h"
#include "cuda/devices.h"
#endif

namespace dsv4 {
namespace {

#ifdef DSV4_WITH_CUDA
std::vector<DeviceReport> cuda_reports() {
  const CudaDevices found = find_cuda_devices();
  if (!found.problem.empty()) return {{"cuda", false, found.problem}};
  std::vector<DeviceReport> reports;
  for (const CudaDevice& device : found.devices) {
    const std::string problem = device.problem();
    reports.push_back({fmt::format("cuda:{}", device.device_idx), problem.empty(),
                       problem.empty() ? device.description() : problem});
  }
  return reports;
}

std::unique_ptr<Backend> open_cuda(int device_idx) {
  return std::make_unique<CudaBackend>(device_idx);
}
#else
constexpr std::string_view kWithoutCuda =
    "this build has no CUDA; build where nvcc is found, or with -DDSV4_CUDA=ON to learn what is "
    "missing";

std::vector<DeviceReport> cuda_reports() { return {{"cuda", false, std::string(kWithoutCuda)}}; }

std::unique_ptr<Backend> open_cuda(int device_idx) {
  fail(ErrorCode::kUnsupportedDevice, "cuda:{} cannot be used: {}", device_idx, kWithoutCuda);
}
#endif

// The digits of "cuda:N", "0" for "cuda"; empty: it is no such name.
std::string_view cuda_digits(std::string_view name) {
  constexpr std::string_view kCuda = "cuda", kNumbered = "cuda:";
  if (name == kCuda) return "0";
  if (!name.starts_with(kNumbered)) return {};
  name.remove_prefix(kNumbered.size());
  const bool is_number = name.find_first_not_of("0123456789") == std::string_view::npos;
  return is_number ? name : std::string_view();
}

std::optional<int> cuda_device_idx(std::string_view name) {
  const std::string_view digits = cuda_digits(name);
  int device_idx = 0;
  const auto [rest, code] =
      std::from_chars(digits.data(), digits.data() + digits.size(), device_idx);
  if (code != std::errc()) return std::nullopt;  // no digits, or no device has such a number
  return device_idx;
}

}  // namespace

bool names_device(std::string_view name) {
  return name == "reference" || name == "cpu" || !cuda_digits(name).empty();
}

std::vector<std::string> built_backends() {
#ifdef DSV4_WITH_CUDA
  return {"reference", "cpu", "cuda"};
#else
  return {"reference", "cpu"};
#endif
}

std::vector<DeviceReport> device_reports() {
  std::string instruction_sets;
  for (const std::string& name : cpu_instruction_sets()) {
    instruction_sets += (instruction_sets.empty() ? "" : ", ") + name;
  }
  std::vector<DeviceReport> reports = {
      {"reference", true, "plain C++, one thread; the judge of all others"},
      {"cpu", true, fmt::format("{} threads; {}", usable_cores(), instruction_sets)}};
  for (DeviceReport& report : cuda_reports()) reports.push_back(std::move(report));
  return reports;
}

std::vector<std::string> available_backends() {
  std::vector<std::string> names;
  for (const DeviceReport& report : device_reports()) {
    if (report.usable) names.push_back(report.name);
  }
  return names;
}

std::unique_ptr<Backend> open_backend(std::string_view name, int num_threads) {
  require(num_threads >= 0 && num_threads <= kMaxThreads, ErrorCode::kBadRequest,
          "num_threads is {}; it must be between 0, all cores, and {}", num_threads, kMaxThreads);
  if (name == "reference") return std::make_unique<ReferenceBackend>();
  if (name == "cpu") return std::make_unique<CpuBackend>(CpuOptions{.num_threads = num_threads});
  if (const std::optional<int> device_idx = cuda_device_idx(name)) return open_cuda(*device_idx);
  std::string names;
  for (const std::string& known : available_backends())
    names += (names.empty() ? "" : ", ") + known;
  fail(ErrorCode::kUnsupportedDevice, "no device \"{}\" on this machine; available: {}", name,
       names);
}

}  // namespace dsv4
