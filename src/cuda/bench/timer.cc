#include "cuda/bench/timer.h"

#include <cuda_runtime_api.h>

#include <algorithm>
#include <cmath>
#include <optional>

#include "cuda/errors.h"

namespace dsv4::cuda {
namespace {

constexpr int kWarmUps = 2;
constexpr std::int64_t kMaxCalls = 4000;  // of a graph

class Stream {
 public:
  Stream() {
    check_cuda(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking), "create a stream");
  }
  ~Stream() { cudaStreamDestroy(stream_); }
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;
  cudaStream_t get() const { return stream_; }

 private:
  cudaStream_t stream_ = nullptr;
};

class Event {
 public:
  Event() { check_cuda(cudaEventCreate(&event_), "create an event"); }
  ~Event() { cudaEventDestroy(event_); }
  Event(const Event&) = delete;
  Event& operator=(const Event&) = delete;
  void record(cudaStream_t stream) { check_cuda(cudaEventRecord(event_, stream), "time a call"); }
  // Waits for this event.
  double seconds_since(const Event& start) const {
    check_cuda(cudaEventSynchronize(event_), "finish a timed call");
    float milliseconds = 0;
    check_cuda(cudaEventElapsedTime(&milliseconds, start.event_, event_), "read a time");
    return milliseconds * 1e-3;
  }

 private:
  cudaEvent_t event_ = nullptr;
};

// A recorded sequence of calls.
class Graph {
 public:
  Graph(const TimedCalls& calls, std::int64_t num_calls, cudaStream_t stream) {
    check_cuda(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal), "begin a graph");
    for (std::int64_t i = 0; i < num_calls; ++i) calls.call(i, {stream});
    cudaGraph_t graph = nullptr;
    check_cuda(cudaStreamEndCapture(stream, &graph), "end a graph");
    const cudaError_t made = cudaGraphInstantiate(&graph_, graph, 0);
    cudaGraphDestroy(graph);
    check_cuda(made, "instantiate a graph");
  }
  ~Graph() { cudaGraphExecDestroy(graph_); }
  Graph(const Graph&) = delete;
  Graph& operator=(const Graph&) = delete;
  void launch(cudaStream_t stream) {
    check_cuda(cudaGraphLaunch(graph_, stream), "launch a graph");
  }

 private:
  cudaGraphExec_t graph_ = nullptr;
};

double seconds_of(const std::function<void()>& work, cudaStream_t stream) {
  Event start, end;
  start.record(stream);
  work();
  end.record(stream);
  return end.seconds_since(start);
}

// Seconds of `num_calls` calls, once a replay.
std::vector<double> time_replays(const TimedCalls& calls, std::int64_t num_calls, int num_replays,
                                 cudaStream_t stream) {
  std::optional<Graph> graph;
  if (calls.in_graph) graph.emplace(calls, num_calls, stream);
  const auto replay = [&] {
    if (graph) return graph->launch(stream);
    for (std::int64_t i = 0; i < num_calls; ++i) calls.call(i, {stream});
  };
  std::vector<double> seconds;
  for (int i = 0; i < kWarmUps + num_replays; ++i) {
    const double replay_seconds = seconds_of(replay, stream);
    if (i >= kWarmUps) seconds.push_back(replay_seconds);
  }
  return seconds;
}

}  // namespace

std::vector<double> time_calls(const TimedCalls& calls) {
  const Stream stream;
  std::int64_t num_calls = calls.num_sets;
  const double probed = time_replays(calls, num_calls, 1, stream.get())[0];
  const auto rounds = static_cast<std::int64_t>(std::ceil(calls.min_seconds / probed));
  num_calls *=
      std::clamp<std::int64_t>(rounds, 1, std::max<std::int64_t>(1, kMaxCalls / num_calls));
  std::vector<double> seconds = time_replays(calls, num_calls, calls.num_replays, stream.get());
  for (double& each : seconds) each /= static_cast<double>(num_calls);
  return seconds;
}

void make_current(int device_idx) {
  check_cuda(cudaSetDevice(device_idx), "make a device the current one");
}

}  // namespace dsv4::cuda
