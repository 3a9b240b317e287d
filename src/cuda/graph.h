// graph.h: work that is recorded once and replayed, a CUDA graph.
#pragma once

#include <cuda_runtime_api.h>

#include <functional>

namespace dsv4::cuda {

// A sequence of work on the current device. What it uses has to live until its last replay has
// finished.
class Graph {
 public:
  // Records what `record` queues on `stream`; none of it runs then, and it may neither allocate nor
  // wait. Throws Error, and what `record` throws; either way the stream can be used again.
  Graph(cudaStream_t stream, const std::function<void()>& record);
  ~Graph() { cudaGraphExecDestroy(graph_); }
  Graph(const Graph&) = delete;
  Graph& operator=(const Graph&) = delete;

  // Queues all of it on `stream`. Throws Error.
  void replay(cudaStream_t stream) const;

 private:
  cudaGraphExec_t graph_ = nullptr;
};

}  // namespace dsv4::cuda
