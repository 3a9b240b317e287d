#include "cuda/bench/ceilings.h"

#include <cublasLt.h>

#include <array>

#include "cuda/bench/fill.h"
#include "cuda/bench/memory_ceilings.h"
#include "cuda/bench/timer.h"
#include "cuda/errors.h"
#include "ops/backend.h"

namespace dsv4::cuda {
namespace {

constexpr std::int64_t kSize = 8192;  // M = N = K
constexpr std::int64_t kWorkspaceBytes = 64 << 20;
constexpr int kAlgorithms = 4;  // of the heuristic's list, best first by its own guess

void check_cublas(cublasStatus_t status, const char* doing) {
  require(status == CUBLAS_STATUS_SUCCESS, ErrorCode::kInternal, "cuBLASLt cannot {}: {}", doing,
          cublasLtGetStatusString(status));
}

// D = A B^T with FP32 sums and D in BF16; owns cuBLASLt's handles.
class Matmul {
 public:
  explicit Matmul(cudaDataType_t input) {
    check_cublas(cublasLtCreate(&handle_), "start");
    check_cublas(cublasLtMatmulDescCreate(&op_, CUBLAS_COMPUTE_32F, CUDA_R_32F), "describe");
    // Column-major there: a K-major matrix of ours is the transposed one of theirs.
    const cublasOperation_t transposed = CUBLAS_OP_T;
    set(CUBLASLT_MATMUL_DESC_TRANSA, &transposed, sizeof(transposed));
    if (input == CUDA_R_8F_E4M3) {
      const std::int8_t fast = 1;  // sums of fewer bits, as every FP8 kernel on Hopper has them
      set(CUBLASLT_MATMUL_DESC_FAST_ACCUM, &fast, sizeof(fast));
    }
    check_cublas(cublasLtMatrixLayoutCreate(&in_, input, kSize, kSize, kSize), "describe");
    check_cublas(cublasLtMatrixLayoutCreate(&out_, CUDA_R_16BF, kSize, kSize, kSize), "describe");
    choose_algorithms();
  }
  ~Matmul() {
    cublasLtMatrixLayoutDestroy(in_);
    cublasLtMatrixLayoutDestroy(out_);
    cublasLtMatmulDescDestroy(op_);
    cublasLtDestroy(handle_);
  }
  Matmul(const Matmul&) = delete;
  Matmul& operator=(const Matmul&) = delete;

  int num_algorithms() const { return num_algorithms_; }
  void run(int algorithm_idx, const void* a, const void* b, void* d, void* workspace,
           DeviceStream stream) const {
    const float alpha = 1, beta = 0;
    check_cublas(
        cublasLtMatmul(handle_, op_, &alpha, a, in_, b, in_, &beta, d, out_, d, out_,
                       &algorithms_[static_cast<std::size_t>(algorithm_idx)].algo, workspace,
                       kWorkspaceBytes, static_cast<cudaStream_t>(stream.handle)),
        "multiply");
  }

 private:
  void set(cublasLtMatmulDescAttributes_t which, const void* value, std::size_t bytes) {
    check_cublas(cublasLtMatmulDescSetAttribute(op_, which, value, bytes), "describe");
  }
  void choose_algorithms() {
    cublasLtMatmulPreference_t preference = nullptr;
    check_cublas(cublasLtMatmulPreferenceCreate(&preference), "choose");
    const std::uint64_t workspace = kWorkspaceBytes;
    cublasLtMatmulPreferenceSetAttribute(preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES,
                                         &workspace, sizeof(workspace));
    const cublasStatus_t status =
        cublasLtMatmulAlgoGetHeuristic(handle_, op_, in_, in_, out_, out_, preference, kAlgorithms,
                                       algorithms_.data(), &num_algorithms_);
    cublasLtMatmulPreferenceDestroy(preference);
    check_cublas(status, "choose an algorithm");
  }

  cublasLtHandle_t handle_ = nullptr;
  cublasLtMatmulDesc_t op_ = nullptr;
  cublasLtMatrixLayout_t in_ = nullptr, out_ = nullptr;
  std::array<cublasLtMatmulHeuristicResult_t, kAlgorithms> algorithms_ = {};
  int num_algorithms_ = 0;
};

// Of the fastest algorithm.
Ceiling measure_tensor(Backend& backend, cudaDataType_t input, std::int64_t element_bytes) {
  const DeviceBuffer a = backend.allocate(kSize * kSize * element_bytes);
  const DeviceBuffer b = backend.allocate(kSize * kSize * element_bytes);
  const DeviceBuffer d = backend.allocate(kSize * kSize * 2);
  const DeviceBuffer workspace = backend.allocate(kWorkspaceBytes);
  const auto fill_normal = element_bytes == 2 ? fill_normal_bf16 : fill_normal_e4m3;
  fill_normal(a.data(), kSize * kSize, 1);
  fill_normal(b.data(), kSize * kSize, 2);
  const Matmul matmul(input);
  Ceiling best;
  for (int i = 0; i < matmul.num_algorithms(); ++i) {
    const auto call = [&](std::int64_t, DeviceStream stream) {
      matmul.run(i, a.data(), b.data(), d.data(), workspace.data(), stream);
    };
    const Ceiling reached =
        ceiling_of(2.0 * kSize * kSize * kSize, time_calls(backend, {.call = call}));
    if (reached.per_second > best.per_second) best = reached;
  }
  return best;
}

}  // namespace

Ceilings measure_ceilings(Backend& backend) {
  const MemoryCeilings memory = measure_memory(backend);
  return {memory.read, memory.copy, measure_tensor(backend, CUDA_R_16BF, 2),
          measure_tensor(backend, CUDA_R_8F_E4M3, 1)};
}

}  // namespace dsv4::cuda
