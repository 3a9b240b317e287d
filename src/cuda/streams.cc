#include "cuda/streams.h"

#include "cuda/errors.h"

namespace dsv4::cuda {

CudaStream::CudaStream() {
  // Without the flag it would wait for, and hold up, work on CUDA's own null stream.
  check_cuda(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking), "create a stream");
}

CudaEvent::CudaEvent(cudaStream_t default_stream) : default_stream_(default_stream) {
  check_cuda(cudaEventCreate(&event_), "create an event");
}

void CudaEvent::record(DeviceStream stream) {
  check_cuda(cudaEventRecord(event_, stream_of(stream)), "record an event");
  recorded_ = true;
}

void CudaEvent::hold(DeviceStream stream) const {
  check_cuda(cudaStreamWaitEvent(stream_of(stream), event_, 0), "make a stream wait for an event");
}

void CudaEvent::synchronize() const {
  check_work(cudaEventSynchronize(event_), "the event's device");
}

double CudaEvent::seconds_since(const DeviceEvent& start) const {
  const auto& from = static_cast<const CudaEvent&>(start);
  DSV4_CHECK(recorded_ && from.recorded_, "seconds between events of which one was not recorded");
  synchronize();
  float milliseconds = 0;
  check_cuda(cudaEventElapsedTime(&milliseconds, from.event_, event_),
             "read the time between two events");
  return milliseconds * 1e-3;
}

}  // namespace dsv4::cuda
