// stored_scale.h: a global or input scale as a checkpoint's layout stores it.
#pragma once

#include <string>

#include "checkpoint/tensor_names.h"

namespace dsv4 {

// How `layout` stores a global or input scale that decodes: as it is, or as the FP32 whose
// reciprocal in FP32 is it, or the nearest to that. Throws Error kUnsupported naming `matrix` where
// the reciprocal is not finite.
float stored_scale(float decodes, Nvfp4Layout layout, const std::string& matrix);

}  // namespace dsv4
