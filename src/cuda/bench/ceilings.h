// ceilings.h: what a CUDA device gives at the moment: bytes from memory, and products on its tensor
// cores by cuBLASLt. No CUDA header. For benchmarks only.
#pragma once

namespace dsv4 {
class Backend;
}

namespace dsv4::cuda {

// Bytes or operations a second: as rows are timed, after pauses, and sustained (timer.h).
struct Ceiling {
  double per_second = 0;
  double sm_hertz = 0;
  double sustained_per_second = 0;
  double sustained_sm_hertz = 0;
};

struct Ceilings {
  Ceiling read;  // bytes
  Ceiling copy;  // read and written bytes together
  Ceiling bf16;  // operations; a multiply-add is two
  Ceiling fp8;
};

// Takes about ten seconds. `backend` is of the current device. Throws Error.
Ceilings measure_ceilings(Backend& backend);

}  // namespace dsv4::cuda
