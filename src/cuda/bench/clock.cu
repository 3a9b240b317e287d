#include <algorithm>
#include <cstdint>
#include <vector>

#include "cuda/bench/clock.h"
#include "cuda/errors.h"
#include "cuda/launch.h"

namespace dsv4::cuda {
namespace {

// A second CTA of so many threads fits an SM, too, but SMs without one are filled first.
constexpr int kThreads = 1024;

struct Reading {
  std::int64_t cycles = 0;
  std::int64_t nanoseconds = 0;
};

__global__ void __launch_bounds__(kThreads) read_clock(Reading* of_sm, int num_sms) {
  if (threadIdx.x != 0) return;
  std::uint32_t sm;
  std::int64_t nanoseconds;
  asm volatile("mov.u32 %0, %%smid;" : "=r"(sm));
  asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(nanoseconds));
  // Numbers of SMs may have gaps and then pass how many there are.
  if (sm < static_cast<std::uint32_t>(num_sms)) of_sm[sm] = {clock64(), nanoseconds};
}

int count_sms() {
  int device = 0, sms = 0;
  check_cuda(cudaGetDevice(&device), "ask for the current device");
  check_cuda(cudaDeviceGetAttribute(&sms, cudaDevAttrMultiProcessorCount, device),
             "ask for the number of SMs");
  return sms;
}

}  // namespace

SmClock::SmClock(Backend& backend)
    : backend_(backend),
      num_sms_(count_sms()),
      start_(backend.allocate(num_sms_ * static_cast<std::int64_t>(sizeof(Reading)))),
      stop_(backend.allocate(start_.size_bytes())) {}

void SmClock::start(DeviceStream stream) {
  backend_.fill(start_.data(), 0, start_.size_bytes(), stream);
  backend_.fill(stop_.data(), 0, stop_.size_bytes(), stream);
  launch("read_clock", read_clock, {.grid = static_cast<unsigned>(num_sms_), .block = kThreads},
         static_cast<cudaStream_t>(stream.handle), start_.as<Reading>(), num_sms_);
}

void SmClock::stop(DeviceStream stream) {
  launch("read_clock", read_clock, {.grid = static_cast<unsigned>(num_sms_), .block = kThreads},
         static_cast<cudaStream_t>(stream.handle), stop_.as<Reading>(), num_sms_);
}

double SmClock::hertz(DeviceStream stream) {
  std::vector<Reading> start(static_cast<std::size_t>(num_sms_)), stop(start.size());
  backend_.copy_to_host(start.data(), start_.data(), start_.size_bytes(), stream);
  backend_.copy_to_host(stop.data(), stop_.data(), stop_.size_bytes(), stream);
  backend_.synchronize(stream);
  std::vector<double> hertz;
  for (std::size_t sm = 0; sm < start.size(); ++sm) {
    // An SM that one of the two kernels left out has zeros.
    if (start[sm].nanoseconds == 0 || stop[sm].nanoseconds <= start[sm].nanoseconds) continue;
    hertz.push_back(1e9 * static_cast<double>(stop[sm].cycles - start[sm].cycles) /
                    static_cast<double>(stop[sm].nanoseconds - start[sm].nanoseconds));
  }
  if (hertz.empty()) return 0;
  const auto middle = hertz.begin() + static_cast<std::ptrdiff_t>(hertz.size() / 2);
  std::nth_element(hertz.begin(), middle, hertz.end());
  return *middle;
}

}  // namespace dsv4::cuda
