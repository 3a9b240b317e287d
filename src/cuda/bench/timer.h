// timer.h: how long calls take on a CUDA device, timed by events: replays of a recorded graph.
// No CUDA header. For benchmarks only.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

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

// Seconds a call took, one value a replay, after warm-up, on a stream of its own. The backend's
// device is the current one. Throws Error.
std::vector<double> time_calls(Backend& backend, const TimedCalls& calls);

// What all of cuda/bench/ uses: the device becomes the thread's current one. Throws Error.
void make_current(int device_idx);

}  // namespace dsv4::cuda
