// quantization_claims.h: compares what a model's JSON files say of the experts' formats to what its
// tensors are. Advisory: binding never depends on it.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "checkpoint/weights.h"

namespace dsv4 {

// Reads `dir`/config.json (expert_dtype, quantization_config) and, if there is one,
// hf_quant_config.json, in both schemas of ModelOpt. Returns one sentence for each contradiction to
// the layers of `report`; a file that cannot be read is one, too. Throws nothing but out of memory.
//
// ModelOpt's lists of modules that it left alone (ignore, exclude_modules) say "not NVFP4", not
// "BF16": those are FP8 or MXFP4 in published models.
std::vector<std::string> check_quantization_claims(const std::filesystem::path& dir,
                                                   const BindReport& report);

// Whether `name` fits a pattern whose stars stand for any text.
bool fits_pattern(std::string_view name, std::string_view pattern);

}  // namespace dsv4
