#include "model/layer.h"

namespace dsv4 {

MatrixView OpRunner::activations(const MatrixView& x, ActivationFormat activation) {
  if (!activation.has_value()) return x;
  const MutableMatrixView codes = buffers_.quantized(*activation, x.rows, x.cols);
  run(QuantizeParams{.x = x, .out = codes});
  return codes;
}

void OpRunner::linear(const MatrixView& x, const MatrixView& w, const MutableMatrixView& y,
                      ActivationFormat activation, int num_parts) {
  run(LinearParams{.x = activations(x, activation), .w = w, .y = y, .num_parts = num_parts});
}

}  // namespace dsv4
