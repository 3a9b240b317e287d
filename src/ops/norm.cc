// Refusals and cost of the root-mean-square norm.
#include "ops/norm.h"

#include "ops/op_checks.h"

namespace dsv4 {

void check(const RmsNormParams& p) {
  check_matrix("RmsNormParams.x", p.x, kPlainFormats);
  check_matrix("RmsNormParams.out", p.out, kPlainFormats);
  check_equal("RmsNormParams.out.rows", p.out.rows, "x.rows", p.x.rows);
  check_equal("RmsNormParams.out.cols", p.out.cols, "x.cols", p.x.cols);
  check_not_negative("RmsNormParams.eps", p.eps);
  if (p.weight.data == nullptr) return;
  check_matrix("RmsNormParams.weight", p.weight, kPlainFormats);
  check_equal("RmsNormParams.weight.rows", p.weight.rows, "one row", 1);
  check_equal("RmsNormParams.weight.cols", p.weight.cols, "x.cols", p.x.cols);
}

Cost cost(const RmsNormParams& p) {
  const bool weighted = p.weight.data != nullptr;
  return {(weighted ? 4.0 : 3.0) * static_cast<double>(p.x.rows) * static_cast<double>(p.x.cols),
          matrix_bytes(p.x) + (weighted ? matrix_bytes(p.weight) : 0), matrix_bytes(p.out)};
}

}  // namespace dsv4
