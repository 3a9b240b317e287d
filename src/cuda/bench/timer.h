// timer.h: how long calls take on a CUDA device, timed by events: replays of a recorded graph.
// No CUDA header. For benchmarks only.
#pragma once

#include <cstdint>
#include <functional>

#include "ops/backend.h"

namespace dsv4::cuda {

struct TimedCalls {
  // Queues call number `call_idx` on the stream; called while it is recorded, so it may not
  // allocate or wait. Numbers run from 0 to a multiple of `num_sets`.
  std::function<void(std::int64_t call_idx, DeviceStream stream)> call;
  std::int64_t num_sets = 1;  // input sets that calls rotate over
  int num_replays = 9;
  double min_seconds = 2e-3;  // of one replay, so that an event's resolution does not matter
  // False: calls are queued one by one, which suits calls of milliseconds.
  bool in_graph = true;
};

struct CallTimes {
  // A call's, the median of the replays. Each replay begins after a pause of several times its
  // length, so that every row and every ceiling finds the device alike, below its power limit.
  double seconds = 0;
  double spread = 0;    // (slowest - fastest replay) / seconds
  double sm_hertz = 0;  // the SMs' clock in these replays, their median
  // The medians when replays follow each other without a pause, after the power limit has acted.
  double sustained_seconds = 0;
  double sustained_sm_hertz = 0;
};

// Times calls after warm-up, on a stream of their own. The backend's device is the current one.
// Throws Error.
CallTimes time_calls(Backend& backend, const TimedCalls& calls);

// What all of cuda/bench/ uses: the device becomes the thread's current one. Throws Error.
void make_current(int device_idx);

}  // namespace dsv4::cuda
