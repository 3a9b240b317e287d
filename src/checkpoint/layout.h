// layout.h: which tensors a model has in a published checkpoint: names, dtypes and shapes.
//
// A list, for synthetic headers and for writers. Binding walks the same table (tensor_table.h).
#pragma once

#include <vector>

#include "checkpoint/model_config.h"
#include "io/safetensors.h"
#include "tensor/matrix_view.h"

namespace dsv4 {

// The formats of the matrices that a checkpoint may quantise; the rest is BF16 and F32 always.
struct LayoutFormats {
  Format linears = Format::kE4m3;   // attention, indexer queries, shared experts, draft inputs
  Format experts = Format::kMxfp4;  // routed experts of the layers
  Format draft_experts = Format::kMxfp4;  // routed experts of the draft block
  DType fp8_expert_scale = DType::kE8M0;  // of FP8 experts
};

inline constexpr LayoutFormats kOfficialFormats{};
// NVIDIA's releases (ModelOpt): the draft block's experts stay MXFP4.
inline constexpr LayoutFormats kModelOptNvfp4Formats{Format::kE4m3, Format::kNvfp4, Format::kMxfp4,
                                                     DType::kE8M0};
inline constexpr LayoutFormats kBf16Formats{Format::kBf16, Format::kBf16, Format::kBf16,
                                            DType::kE8M0};
// The Base models: FP8 experts with FP32 scales.
inline constexpr LayoutFormats kFp8ExpertFormats{Format::kE4m3, Format::kE4m3, Format::kE4m3,
                                                 DType::kF32};

// All tensors of a model, the draft block's last; begin and end are 0. The config has been checked.
// A model with DSpark keys gets no draft block: its stages have no published layout here.
std::vector<TensorInfo> expected_tensors(const ModelConfig& config, const LayoutFormats& formats);

}  // namespace dsv4
