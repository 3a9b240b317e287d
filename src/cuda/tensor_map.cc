#include "cuda/tensor_map.h"

#include <cuda_runtime_api.h>

#include <cstdint>

#include "cuda/errors.h"

namespace dsv4::cuda {
namespace {

// The driver's function, found at run time: libcuda is not linked, so that programs start without.
decltype(&cuTensorMapEncodeTiled) encode_function() {
  static const auto function = [] {
    void* found = nullptr;
    cudaDriverEntryPointQueryResult result = cudaDriverEntryPointSymbolNotFound;
    check_cuda(cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &found, 12000,
                                                cudaEnableDefault, &result),
               "find cuTensorMapEncodeTiled in the driver");
    require(result == cudaDriverEntryPointSuccess && found != nullptr,
            ErrorCode::kUnsupportedDevice,
            "the driver has no cuTensorMapEncodeTiled; it must be for CUDA 12 or later");
    return reinterpret_cast<decltype(&cuTensorMapEncodeTiled)>(found);
  }();
  return function;
}

}  // namespace

CUtensorMap swizzled_boxes(const MatrixView& m, int rows, int chunks) {
  constexpr std::int64_t kChunkCols = 64, kChunkBytes = 2 * kChunkCols;
  const cuuint64_t sizes[3] = {kChunkCols, static_cast<cuuint64_t>(m.rows),
                               static_cast<cuuint64_t>(m.cols / kChunkCols)};
  const cuuint64_t strides[2] = {static_cast<cuuint64_t>(2 * m.row_stride), kChunkBytes};
  const cuuint32_t box[3] = {kChunkCols, static_cast<cuuint32_t>(rows),
                             static_cast<cuuint32_t>(chunks)};
  const cuuint32_t steps[3] = {1, 1, 1};
  CUtensorMap map;
  const CUresult status = encode_function()(
      &map, CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, 3, const_cast<void*>(m.data), sizes, strides, box,
      steps, CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B,
      CU_TENSOR_MAP_L2_PROMOTION_L2_128B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  require(status == CUDA_SUCCESS, ErrorCode::kInternal,
          "cannot describe {} x {} values, {} from row to row, to the copy engine in boxes of {} "
          "rows: status {}",
          m.rows, m.cols, m.row_stride, rows, static_cast<int>(status));
  return map;
}

}  // namespace dsv4::cuda
