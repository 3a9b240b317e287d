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

// Seconds of `num_calls` calls, once a replay.
std::vector<double> time_replays(Backend& backend, const TimedCalls& calls, std::int64_t num_calls,
                                 int num_replays) {
  const auto owned = backend.create_stream();
  const DeviceStream stream = owned->get();
  const auto cuda_stream = static_cast<cudaStream_t>(stream.handle);
  const auto start = backend.create_event(), end = backend.create_event();
  std::optional<Graph> graph;
  if (calls.in_graph) graph.emplace(calls, num_calls, cuda_stream);
  std::vector<double> seconds;
  for (int i = 0; i < kWarmUps + num_replays; ++i) {
    start->record(stream);
    if (graph) {
      graph->launch(cuda_stream);
    } else {
      for (std::int64_t call_idx = 0; call_idx < num_calls; ++call_idx) {
        calls.call(call_idx, stream);
      }
    }
    end->record(stream);
    const double replay_seconds = end->seconds_since(*start);
    if (i >= kWarmUps) seconds.push_back(replay_seconds);
  }
  return seconds;
}

}  // namespace

std::vector<double> time_calls(Backend& backend, const TimedCalls& calls) {
  std::int64_t num_calls = calls.num_sets;
  const double probed = time_replays(backend, calls, num_calls, 1)[0];
  const auto rounds = static_cast<std::int64_t>(std::ceil(calls.min_seconds / probed));
  num_calls *=
      std::clamp<std::int64_t>(rounds, 1, std::max<std::int64_t>(1, kMaxCalls / num_calls));
  std::vector<double> seconds = time_replays(backend, calls, num_calls, calls.num_replays);
  for (double& each : seconds) each /= static_cast<double>(num_calls);
  return seconds;
}

void make_current(int device_idx) {
  check_cuda(cudaSetDevice(device_idx), "make a device the current one");
}

}  // namespace dsv4::cuda
