// streams.h: streams and events of a CUDA device as ops/backend.h has them. The backend's default
// stream, and what runs on any of them: cuda_backend.h.
#pragma once

#include <cuda_runtime_api.h>

#include "ops/backend.h"

namespace dsv4::cuda {

// Of the current device. Both throw Error when they are made.
class CudaStream final : public OwnedStream {
 public:
  CudaStream();
  ~CudaStream() override { cudaStreamDestroy(stream_); }
  CudaStream(const CudaStream&) = delete;
  CudaStream& operator=(const CudaStream&) = delete;
  DeviceStream get() const override { return {stream_}; }
  cudaStream_t cuda_stream() const { return stream_; }

 private:
  cudaStream_t stream_ = nullptr;
};

class CudaEvent final : public DeviceEvent {
 public:
  // `default_stream`: what a null DeviceStream stands for.
  explicit CudaEvent(cudaStream_t default_stream);
  ~CudaEvent() override { cudaEventDestroy(event_); }
  CudaEvent(const CudaEvent&) = delete;
  CudaEvent& operator=(const CudaEvent&) = delete;
  void record(DeviceStream stream) override;
  void hold(DeviceStream stream) const override;
  void synchronize() const override;
  double seconds_since(const DeviceEvent& start) const override;

 private:
  cudaStream_t stream_of(DeviceStream stream) const {
    return stream.handle == nullptr ? default_stream_ : static_cast<cudaStream_t>(stream.handle);
  }
  cudaStream_t default_stream_;
  cudaEvent_t event_ = nullptr;
  bool recorded_ = false;
};

}  // namespace dsv4::cuda
