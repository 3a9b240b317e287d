// ceilings.h: what a CUDA device gives at the moment: bytes from memory, and products on its tensor
// cores by cuBLASLt. No CUDA header. For benchmarks only.
#pragma once

namespace dsv4 {
class Backend;
}

namespace dsv4::cuda {

struct Ceilings {
  double read_bytes_per_second = 0;
  double copy_bytes_per_second = 0;  // read and written bytes together
  double bf16_flops_per_second = 0;  // a multiply-add is two
  double fp8_flops_per_second = 0;
};

// Takes about a second. `backend` is of the current device. Throws Error.
Ceilings measure_ceilings(Backend& backend);

}  // namespace dsv4::cuda
