// matrix_load.h: 8 x 8 matrices of 16-bit elements between shared memory and a warp's registers,
// and exchanged within those. One function, one instruction.
//
// Lane l of the warp names a row of 16 bytes (16-byte aligned): row l % 8 of matrix l / 8. Of every
// matrix a lane holds two elements in one register: row l / 4, columns 2 (l % 4) and the next, the
// layout of the operands and accumulators of mma and wgmma. With _trans rows and columns change
// places in the registers. All lanes of the warp take part.
#pragma once

#include <cstdint>

namespace dsv4::cuda {

// Four 8 x 8 matrices, a register of each.
struct MatrixFragments {
  std::uint32_t matrices[4];
};

__device__ __forceinline__ std::uint32_t shared_address(const void* shared) {
  return static_cast<std::uint32_t>(__cvta_generic_to_shared(shared));
}

// https://docs.nvidia.com/cuda/parallel-thread-execution/#warp-level-matrix-instructions-ldmatrix
__device__ __forceinline__ MatrixFragments ldmatrix_x4(const void* row) {
  MatrixFragments f;
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(f.matrices[0]), "=r"(f.matrices[1]), "=r"(f.matrices[2]), "=r"(f.matrices[3])
               : "r"(shared_address(row))
               : "memory");
  return f;
}

__device__ __forceinline__ MatrixFragments ldmatrix_x4_trans(const void* row) {
  MatrixFragments f;
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(f.matrices[0]), "=r"(f.matrices[1]), "=r"(f.matrices[2]), "=r"(f.matrices[3])
               : "r"(shared_address(row))
               : "memory");
  return f;
}

// https://docs.nvidia.com/cuda/parallel-thread-execution/#warp-level-matrix-instructions-stmatrix
__device__ __forceinline__ void stmatrix_x4(void* row, const MatrixFragments& f) {
  asm volatile(
      "stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(shared_address(row)),
      "r"(f.matrices[0]), "r"(f.matrices[1]), "r"(f.matrices[2]), "r"(f.matrices[3])
      : "memory");
}

__device__ __forceinline__ void stmatrix_x4_trans(void* row, const MatrixFragments& f) {
  asm volatile("stmatrix.sync.aligned.m8n8.x4.trans.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(
                   shared_address(row)),
               "r"(f.matrices[0]), "r"(f.matrices[1]), "r"(f.matrices[2]), "r"(f.matrices[3])
               : "memory");
}

// An 8 x 8 matrix of 16-bit elements, rows and columns exchanged across the warp.
// https://docs.nvidia.com/cuda/parallel-thread-execution/#warp-level-matrix-instructions-movmatrix
__device__ __forceinline__ std::uint32_t movmatrix_trans(std::uint32_t fragment) {
  std::uint32_t transposed;
  asm("movmatrix.sync.aligned.m8n8.trans.b16 %0, %1;" : "=r"(transposed) : "r"(fragment));
  return transposed;
}

}  // namespace dsv4::cuda
