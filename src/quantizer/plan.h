// plan.h: what a quantised checkpoint will hold: its shards, their tensors and where each tensor's
// bytes come from. Reads names and scalars of the source only; doing it is shard_run.h.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "checkpoint/matrix_list.h"
#include "checkpoint/quantization_config.h"
#include "checkpoint/tensor_names.h"
#include "io/safetensors_writer.h"
#include "quantizer/group_encoder.h"

namespace dsv4 {

// A matrix that is encoded.
struct PlannedMatrix {
  NamedMatrix matrix;
  StoredTensor data;                   // its values or codes in the source
  std::vector<StoredTensor> siblings;  // its scales there
  int group = 0;                       // of QuantizePlan::groups
  int member = 0;                      // of the group
};

struct PlannedTensor {
  enum class Bytes : std::uint8_t {
    kCopy,         // of `stored`
    kCodes,        // of matrices[matrix]
    kBlockScales,  // of matrices[matrix], right after its codes
    kGlobalScale,  // of matrices[matrix], as the layout stores it
    kScalar,       // `scalar`
  };
  TensorDeclaration declaration;
  Bytes bytes = Bytes::kCopy;
  StoredTensor stored;
  bool is_nvfp4_scales = false;  // of kCopy: block scales, none of which may be negative
  bool is_weights = false;       // of kCopy: weights or scales of a matrix, which must be finite
  int matrix = -1;
  float scalar = 0;
};

struct PlannedShard {
  std::string file_name;
  TensorMetadata metadata;
  std::vector<PlannedTensor> tensors;
  std::int64_t source_bytes = 0;  // tensors of the source that end here: the unit of progress
  std::int64_t output_bytes = 0;  // without the header
};

struct QuantizePlan {
  Nvfp4Layout layout = Nvfp4Layout::kModelOpt;
  std::vector<PlannedMatrix> matrices;  // in the order of list_matrices
  std::vector<MatrixGroup> groups;      // gate and up of an expert together, else one matrix
  std::vector<PlannedShard> shards;     // those of the source that keep a tensor, in its order
  std::vector<ModuleFormat> formats;    // of all matrices of the output, for config.json
  std::vector<std::string> notes;       // sentences: what a user should know

  std::int64_t source_bytes() const;
  std::int64_t output_bytes() const;  // without headers and small files
};

struct PlanOptions {
  Nvfp4Layout layout = Nvfp4Layout::kModelOpt;
  std::vector<std::string> modules;  // module_choice.h
  // The input scale of a routed expert's matrix by calibration; null: those of the source are kept.
  std::function<float(const NamedMatrix&)> calibrated_input_scale;
};

// Tensors keep the shard and the order that they have in the source, under DeepSeek's names. An
// encoded matrix has its codes and block scales in the place of its weight; scalars stand at
// the end of a shard, where they misalign nothing, and behind them only tensors whose sizes are no
// multiple of 4, which would misalign them. What is not encoded is copied byte for byte,
// but NVFP4 matrices come in the layout asked for, too. The routed experts' input scales are
// calibration's or the source's; where not all have one, none is written and a note says so.
// `weights` and `names` are of one store and outlive the plan.
// Throws Error kBadRequest (module_choice.h; a calibration, and no expert in NVFP4), kUnsupported
// (a scalar without a finite reciprocal; columns that are no multiple of 16).
QuantizePlan make_plan(const ModelWeights& weights, const NamedTensors& names,
                       const PlanOptions& options);

}  // namespace dsv4
