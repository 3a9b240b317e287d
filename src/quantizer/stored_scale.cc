#include "quantizer/stored_scale.h"

#include <cmath>
#include <limits>

#include "base/error.h"

namespace dsv4 {

float stored_scale(float decodes, Nvfp4Layout layout, const std::string& matrix) {
  if (!nvfp4_names(layout).is_reciprocal) return decodes;
  const float nearest = 1.0f / decodes;
  require(std::isfinite(nearest) && nearest > 0, ErrorCode::kUnsupported,
          "{}: the scale {} has no finite reciprocal, which compressed-tensors' layout stores; use "
          "ModelOpt's",
          matrix, decodes);
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  for (const float stored :
       {nearest, std::nextafter(nearest, 0.0f), std::nextafter(nearest, kInfinity)}) {
    if (1.0f / stored == decodes) return stored;
  }
  return nearest;
}

}  // namespace dsv4
