// expert_gemm_small_cases.h: the smallest cases that reach every kernel of the expert GEMMs on CUDA
// in every form, for compute-sanitizer, under which a kernel takes a hundred times as long. All
// other shapes and row counts: expert_gemm_cases.h.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "testing/cases/expert_gemm_cases.h"

namespace dsv4::testing {

// What leads to one kernel: docs/kernels/moe.md. That it does, and with which length of the ring,
// is tested in cuda/moe/expert_gemm_test.cc.
struct ExpertGemmKernel {
  std::string name;
  std::int64_t ring_cols;  // that its ring of stages holds
  // Rows of a case of several tiles, one of them wide, and of experts without rows.
  RowCounts expert_rows;
  // And of one with more units of work than the kernel has CTAs on 132 SMs, where gate_up has
  // `many_units_n` neurons: a CTA then goes on from one unit to another.
  RowCounts many_units_rows;
  std::int64_t many_units_n;
};

inline std::vector<ExpertGemmKernel> expert_gemm_kernels() {
  return {{"few", 1024, {3, 0, 5, 17, 1, 0}, RowCounts(100, 1), 144},
          {"shared", 1280, few_rows_each(32), RowCounts(70, 2), 144},
          {"some", 768, {33, 0, 49, 9}, RowCounts(70, 7), 144},
          {"many", 512, {130, 0, 65, 9}, RowCounts(15, 41), 1040},
          {"wide", 384, {155, 0, 201}, RowCounts(13, 117), 1040}};
}

// Every kernel with weights of both formats and every format of the output: gate_up, down with
// copies row by row, down in whole chunks of 64 columns, which come by tensor copies. NVFP4 weights
// have a global scale a row and meet rows to spare, MXFP4 ones have padding. K and N are multiples
// of no tile.
//
// `rings`: K goes round the ring of stages once and on; without, as for a host, it is short.
inline std::vector<ExpertGemmCase> small_expert_gemm_cases(bool rings) {
  std::vector<ExpertGemmCase> cases;
  for (const ExpertGemmKernel& kernel : expert_gemm_kernels()) {
    for (const MatrixSpec& weights : {nvfp4_spec(true), mxfp4_spec().padded(32)}) {
      for (const MatrixSpec& out :
           {bf16_spec(), f32_spec().padded(8), nvfp4_spec(true).padded(32)}) {
        ExpertGemmCase c;
        c.expert_rows = kernel.expert_rows;
        c.spare_rows = weights.format == Format::kNvfp4 ? 4 : 0;
        c.weight_spec = weights;
        c.out_spec = out;
        c.k = (rings ? kernel.ring_cols : 64) + 32;
        c.name = kernel.name + " gate_up " + weights.name + " out " + out.name;
        cases.push_back(c);
        if (out.format == Format::kNvfp4) continue;
        c.gate_up = false;
        c.n = 272;
        c.name = kernel.name + " down " + weights.name + " out " + out.name;
        cases.push_back(c);
        c.k += 32;
        c.name += " in whole chunks";
        cases.push_back(c);
      }
    }
  }
  return cases;
}

// Every kernel and way of its operands with more units than CTAs, each of a single stage or two.
inline std::vector<ExpertGemmCase> many_unit_expert_gemm_cases() {
  std::vector<ExpertGemmCase> cases;
  for (const ExpertGemmKernel& kernel : expert_gemm_kernels()) {
    ExpertGemmCase c;
    c.expert_rows = kernel.many_units_rows;
    c.k = 32;
    c.n = kernel.many_units_n;
    c.name = kernel.name + " gate_up";
    cases.push_back(c);
    c.gate_up = false;
    c.n = 2 * c.n - 16;
    c.name = kernel.name + " down";
    cases.push_back(c);
    c.k = 64;
    c.name += " in whole chunks";
    cases.push_back(c);
  }
  return cases;
}

}  // namespace dsv4::testing
