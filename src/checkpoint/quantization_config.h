// quantization_config.h: what a model's JSON files say of its matrices' formats, for a checkpoint
// that is being written. Reading them is quantization_claims.h; our own loader needs neither.
#pragma once

#include <nlohmann/json.hpp>
#include <span>
#include <string>

#include "checkpoint/tensor_names.h"
#include "tensor/matrix_view.h"

namespace dsv4 {

// One matrix of the checkpoint as it is written, under DeepSeek's name without ".weight".
struct ModuleFormat {
  std::string name;
  Format format = Format::kBf16;
  bool has_e8m0_scales = false;  // kE4m3 only: of its tiles; else FP32 or BF16
  bool has_input_scale = false;  // kNvfp4 only
};

// The config.json of a model whose matrices are `modules`: `source`'s with quantization_config
// replaced and, where it is there, expert_dtype adapted; other keys and their order stay.
//
// ModelOpt's layout beside FP8 keeps the keys of `source` for FP8 (or gets DeepSeek's) and adds
// NVIDIA's (moe_quant_algo, MIXED_PRECISION, quantized_layers, ignore, ...); without FP8 it is
// quant_method "modelopt". Activations are written as dynamic when not every NVFP4 expert has an
// input scale. compressed-tensors gets a group each of NVFP4 with input scales (W4A4), without
// (W4A16), and FP8.
nlohmann::ordered_json quantized_config(const nlohmann::ordered_json& source,
                                        std::span<const ModuleFormat> modules, Nvfp4Layout layout);

// hf_quant_config.json beside such a config.json of ModelOpt's layout.
nlohmann::ordered_json hf_quant_config(const nlohmann::ordered_json& config);

}  // namespace dsv4
