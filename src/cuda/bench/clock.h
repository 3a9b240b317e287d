// clock.h: the clock that a device's SMs really ran at over a piece of a stream's work, from their
// own counters. What a driver reports is what it asks for: under load the SMs skip a tenth of it.
// No CUDA header. For benchmarks only.
#pragma once

#include "ops/backend.h"

namespace dsv4::cuda {

class SmClock {
 public:
  explicit SmClock(Backend& backend);
  // Queue the readings before and behind the work.
  void start(DeviceStream stream);
  void stop(DeviceStream stream);
  // Waits for the stream. Hertz, the median over the SMs; 0 if the work was too short to tell.
  double hertz(DeviceStream stream);

 private:
  Backend& backend_;
  int num_sms_;
  DeviceBuffer start_, stop_;
};

}  // namespace dsv4::cuda
