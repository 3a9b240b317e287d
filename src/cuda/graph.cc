#include "cuda/graph.h"

#include "cuda/errors.h"

namespace dsv4::cuda {

Graph::Graph(cudaStream_t stream, const std::function<void()>& record) {
  check_cuda(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal), "begin a graph");
  cudaGraph_t recorded = nullptr;
  try {
    record();
  } catch (...) {
    cudaStreamEndCapture(stream, &recorded);
    if (recorded != nullptr) cudaGraphDestroy(recorded);
    cudaGetLastError();  // what went wrong is on its way already
    throw;
  }
  check_cuda(cudaStreamEndCapture(stream, &recorded), "end a graph");
  const cudaError_t made = cudaGraphInstantiate(&graph_, recorded, 0);
  cudaGraphDestroy(recorded);
  check_cuda(made, "instantiate a graph");
}

void Graph::replay(cudaStream_t stream) const {
  check_cuda(cudaGraphLaunch(graph_, stream), "launch a graph");
}

}  // namespace dsv4::cuda
