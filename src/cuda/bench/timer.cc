#include "cuda/bench/timer.h"

#include <cuda_runtime_api.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <memory>
#include <optional>
#include <thread>
#include <vector>

#include "cuda/bench/clock.h"
#include "cuda/errors.h"
#include "cuda/graph.h"

namespace dsv4::cuda {
namespace {

constexpr int kWarmUps = 2;
// An H200 holds an expert GEMM's full clock for 50 ms from rest.
constexpr double kMinPauseSeconds = 20e-3;
constexpr double kPauseReplays = 4;
constexpr double kSustainedSeconds = 0.25;
constexpr std::int64_t kMaxCalls = 4000;  // of a graph

// Replays of `num_calls` calls.
class Replays {
 public:
  Replays(Backend& backend, const TimedCalls& calls, std::int64_t num_calls)
      : calls_(calls),
        num_calls_(num_calls),
        owned_(backend.create_stream()),
        stream_(owned_->get()),
        cuda_stream_(static_cast<cudaStream_t>(stream_.handle)),
        start_(backend.create_event()),
        end_(backend.create_event()),
        clock_(backend) {
    if (calls.in_graph) graph_.emplace(cuda_stream_, [this] { call_all(); });
  }

  // Makes one; appends its seconds a call, and the clock.
  void make(std::vector<double>* seconds, std::vector<double>* hertz) {
    clock_.start(stream_);
    start_->record(stream_);
    if (graph_) {
      graph_->replay(cuda_stream_);
    } else {
      call_all();
    }
    end_->record(stream_);
    clock_.stop(stream_);
    hertz->push_back(clock_.hertz(stream_));
    seconds->push_back(end_->seconds_since(*start_) / static_cast<double>(num_calls_));
  }

 private:
  void call_all() {
    for (std::int64_t i = 0; i < num_calls_; ++i) calls_.call(i, stream_);
  }

  const TimedCalls& calls_;
  std::int64_t num_calls_;
  std::unique_ptr<OwnedStream> owned_;
  DeviceStream stream_;
  cudaStream_t cuda_stream_;
  std::unique_ptr<DeviceEvent> start_, end_;
  SmClock clock_;
  std::optional<Graph> graph_;
};

// As many calls a replay as fill min_seconds, a multiple of the input sets.
std::int64_t calls_of_replay(Backend& backend, const TimedCalls& calls) {
  std::vector<double> seconds, hertz;
  Replays probe(backend, calls, calls.num_sets);
  for (int i = 0; i <= kWarmUps; ++i) probe.make(&seconds, &hertz);
  const double set_seconds = seconds.back() * static_cast<double>(calls.num_sets);
  const auto rounds = static_cast<std::int64_t>(std::ceil(calls.min_seconds / set_seconds));
  return calls.num_sets *
         std::clamp<std::int64_t>(rounds, 1, std::max<std::int64_t>(1, kMaxCalls / calls.num_sets));
}

// Replays without pauses, at least one.
void make_for(double seconds_to_fill, Replays& replays, std::vector<double>* seconds,
              std::vector<double>* hertz) {
  using Clock = std::chrono::steady_clock;
  const Clock::time_point start = Clock::now();
  do {
    replays.make(seconds, hertz);
  } while (std::chrono::duration<double>(Clock::now() - start).count() < seconds_to_fill);
}

double median(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

}  // namespace

CallTimes time_calls(Backend& backend, const TimedCalls& calls) {
  const std::int64_t num_calls = calls_of_replay(backend, calls);
  Replays replays(backend, calls, num_calls);
  CallTimes times;
  {
    std::vector<double> seconds, hertz;
    for (int i = 0; i < kWarmUps; ++i) replays.make(&seconds, &hertz);
    const std::chrono::duration<double> pause(std::max(
        kMinPauseSeconds, kPauseReplays * static_cast<double>(num_calls) * seconds.back()));
    seconds.clear();
    hertz.clear();
    for (int i = 0; i < calls.num_replays; ++i) {
      std::this_thread::sleep_for(pause);
      replays.make(&seconds, &hertz);
    }
    times.seconds = median(seconds);
    times.sm_hertz = median(hertz);
    const auto [fastest, slowest] = std::minmax_element(seconds.begin(), seconds.end());
    times.spread = (*slowest - *fastest) / times.seconds;
  }
  std::vector<double> seconds, hertz;
  make_for(kSustainedSeconds / 2, replays, &seconds, &hertz);  // until the power limit has acted
  seconds.clear();
  hertz.clear();
  make_for(kSustainedSeconds / 2, replays, &seconds, &hertz);
  times.sustained_seconds = median(seconds);
  times.sustained_sm_hertz = median(hertz);
  return times;
}

void make_current(int device_idx) {
  check_cuda(cudaSetDevice(device_idx), "make a device the current one");
}

}  // namespace dsv4::cuda
