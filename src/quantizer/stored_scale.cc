#include "quantizer/stored_scale.h"

#include <cmath>

#include "base/error.h"

namespace dsv4 {

float stored_scale(float decodes, Nvfp4Layout layout, const std::string& matrix) {
  if (!nvfp4_names(layout).is_reciprocal) return decodes;
  // Where some FP32 has the reciprocal `decodes`, the nearest to 1 / decodes has it.
  const float stored = 1.0f / decodes;
  require(std::isfinite(stored) && stored > 0, ErrorCode::kUnsupported,
          "{}: the scale {} has no finite reciprocal, which compressed-tensors' layout stores; use "
          "ModelOpt's",
          matrix, decodes);
  return stored;
}

}  // namespace dsv4
