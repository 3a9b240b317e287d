#include "quantizer/plan.h"

#include <algorithm>
#include <cstring>
#include <string_view>
#include <unordered_map>
#include <utility>

#include "base/error.h"
#include "checkpoint/tensor_table.h"
#include "numerics/nvfp4.h"
#include "quantizer/module_choice.h"
#include "quantizer/plan_notes.h"
#include "quantizer/stored_scale.h"

namespace dsv4 {
namespace {

constexpr std::string_view kWeight = ".weight";
constexpr std::int64_t kScalarBytes = 4;
// Bytes of codes that share a block scale's byte.
constexpr std::int64_t kCodesPerScale = kNvfp4QuantBlock / 2;

std::string sibling_name(const std::string& matrix, std::string_view tensor) {
  std::string name = matrix;
  name += '.';
  return name += tensor;
}

// The matrix of a tensor `name` that is `matrix`.`tensor`; empty if it is none.
std::string_view matrix_of(std::string_view name, std::string_view tensor) {
  if (!name.ends_with(tensor)) return {};
  name.remove_suffix(tensor.size());
  if (!name.ends_with('.')) return {};
  name.remove_suffix(1);
  return name;
}

float read_scalar(const StoredTensor& tensor) {
  float value = 0;
  std::memcpy(&value, tensor.bytes.data(), sizeof(value));
  return value;
}

// An NVFP4 matrix of the output.
struct Nvfp4Output {
  std::string name;
  int encoded = -1;                             // of QuantizePlan::matrices; -1: as in the source
  Nvfp4Layout source = Nvfp4Layout::kModelOpt;  // of one that is not encoded
  std::optional<StoredTensor> global_scale, source_input_scale;
  bool takes_expert_inputs = false;  // a routed expert of the trunk
  std::optional<float> input_scale;  // that decodes
};

class Planner {
 public:
  Planner(const ModelWeights& weights, const NamedTensors& names, const PlanOptions& options)
      : weights_(weights), names_(names), options_(options), target_(nvfp4_names(options.layout)) {
    plan_.layout = options.layout;
  }

  QuantizePlan make() {
    const std::vector<NamedMatrix> matrices = list_matrices(weights_);
    const std::vector<bool> chosen = choose_matrices(matrices, options_.modules);
    for (std::size_t i = 0; i < matrices.size(); ++i) {
      by_name_.emplace(matrices[i].name, &matrices[i]);
      if (chosen[i]) add_encoded(matrices[i]);
    }
    find_kept_nvfp4();
    settle_input_scales();
    add_note(split_layers_note(matrices, chosen, weights_.layers.size()));
    add_shards();
    add_formats(matrices);
    by_name_.clear();
    return std::move(plan_);
  }

 private:
  enum class Role : std::uint8_t { kCopy, kCodes, kKeptCodes, kKeptScales, kDropped };
  struct Use {
    Role role = Role::kCopy;
    int output = -1;  // of outputs_
  };

  std::optional<StoredTensor> find(const std::string& matrix, std::string_view tensor) const {
    return names_.find(sibling_name(matrix, tensor));
  }

  void add_encoded(const NamedMatrix& matrix) {
    require_whole_blocks(matrix);
    const int index = static_cast<int>(plan_.matrices.size());
    PlannedMatrix& planned = plan_.matrices.emplace_back();
    planned.matrix = matrix;
    planned.data = *(find(matrix.name, kCompressedTensorsNames.codes)
                         ? find(matrix.name, kCompressedTensorsNames.codes)
                         : find(matrix.name, kModelOptNames.codes));
    // gate is followed by up, and by no other gate before it.
    if (matrix.kind == MatrixKind::kExpertUp && !plan_.groups.empty() &&
        is_gate_of(plan_.groups.back().members.front(), matrix)) {
      plan_.groups.back().members.push_back(matrix);
      planned.member = 1;
    } else {
      plan_.groups.push_back({{matrix}});
    }
    planned.group = static_cast<int>(plan_.groups.size()) - 1;

    Nvfp4Output& output = outputs_.emplace_back();
    output.name = matrix.name;
    output.encoded = index;
    output.takes_expert_inputs = is_expert(matrix.kind);
    output.input_scale = matrix.input_scale;
    const int output_idx = static_cast<int>(outputs_.size()) - 1;
    uses_[planned.data.info] = {Role::kCodes, output_idx};
    drop_siblings(planned, output);
  }

  static bool is_gate_of(const NamedMatrix& gate, const NamedMatrix& up) {
    return gate.kind == MatrixKind::kExpertGate && gate.layer == up.layer &&
           gate.expert == up.expert;
  }

  // Loading was strict: whatever of these is there belongs to the matrix.
  void drop_siblings(PlannedMatrix& planned, Nvfp4Output& output) {
    std::vector<std::string_view> tensors(kTileScaleNames.begin(), kTileScaleNames.end());
    for (const Nvfp4Names* names : {&kModelOptNames, &kCompressedTensorsNames}) {
      for (const std::string_view tensor :
           {names->block_scales, names->global_scale, names->input_scale}) {
        tensors.push_back(tensor);
      }
    }
    for (const std::string_view tensor : tensors) {
      const std::optional<StoredTensor> sibling = find(output.name, tensor);
      if (!sibling || !uses_.emplace(sibling->info, Use{Role::kDropped}).second) continue;
      planned.siblings.push_back(*sibling);
      for (const Nvfp4Layout layout : {Nvfp4Layout::kModelOpt, Nvfp4Layout::kCompressedTensors}) {
        if (tensor != nvfp4_names(layout).input_scale || output.takes_expert_inputs) continue;
        output.input_scale = decoded(*sibling, layout);
      }
    }
  }

  static float decoded(const StoredTensor& scalar, Nvfp4Layout layout) {
    const float stored = read_scalar(scalar);
    return nvfp4_names(layout).is_reciprocal ? 1.0f / stored : stored;
  }

  // By dtype and siblings, so that draft stages that are not bound count as well.
  void find_kept_nvfp4() {
    for (const NamedTensors::Entry& entry : names_.entries()) {
      if (entry.tensor.info->dtype != DType::kU8 || uses_.count(entry.tensor.info) > 0) continue;
      for (const Nvfp4Layout layout : {Nvfp4Layout::kModelOpt, Nvfp4Layout::kCompressedTensors}) {
        const Nvfp4Names& names = nvfp4_names(layout);
        const std::string matrix(matrix_of(entry.official, names.codes));
        if (matrix.empty()) continue;
        const auto global_scale = find(matrix, names.global_scale);
        const auto block_scales = find(matrix, names.block_scales);
        if (!global_scale || !block_scales) continue;
        uses_[block_scales->info] = {Role::kKeptScales};
        add_kept(matrix, layout, entry.tensor, *global_scale);
      }
    }
  }

  void add_kept(const std::string& matrix, Nvfp4Layout layout, const StoredTensor& codes,
                const StoredTensor& global_scale) {
    Nvfp4Output& output = outputs_.emplace_back();
    output.name = matrix;
    output.source = layout;
    output.global_scale = global_scale;
    uses_[codes.info] = {Role::kKeptCodes, static_cast<int>(outputs_.size()) - 1};
    uses_[global_scale.info] = {Role::kDropped};
    const auto input_scale = find(matrix, nvfp4_names(layout).input_scale);
    if (input_scale) {
      uses_[input_scale->info] = {Role::kDropped};
      output.source_input_scale = input_scale;
      output.input_scale = decoded(*input_scale, layout);
    }
    const auto known = by_name_.find(matrix);
    output.takes_expert_inputs =
        known != by_name_.end() && is_expert(known->second->kind) && !known->second->is_draft;
  }

  // The routed experts of the trunk all have one or none has.
  void settle_input_scales() {
    std::int64_t experts = 0, with_scale = 0, others_without = 0;
    for (Nvfp4Output& output : outputs_) {
      if (!output.takes_expert_inputs) others_without += !output.input_scale.has_value();
      if (!output.takes_expert_inputs) continue;
      if (options_.calibrated_input_scale) {
        output.input_scale = options_.calibrated_input_scale(*by_name_.at(output.name));
        output.source_input_scale.reset();
      }
      ++experts;
      with_scale += output.input_scale.has_value();
    }
    require(experts > 0 || !options_.calibrated_input_scale, ErrorCode::kBadRequest,
            "the calibration is of no use: no routed expert comes out in NVFP4; choose experts in "
            "--modules, or leave out --calibrate");
    add_note(other_input_scale_note(others_without));
    add_note(input_scale_note(experts, with_scale, options_.layout));
    if (with_scale == experts) return;
    for (Nvfp4Output& output : outputs_) {
      if (output.takes_expert_inputs) output.input_scale.reset();
    }
  }

  void add_note(std::string note) {
    if (!note.empty()) plan_.notes.push_back(std::move(note));
  }

  // ---- shards

  void add_shards() {
    const auto paths = weights_.store->shard_paths();
    plan_.shards.resize(paths.size());
    std::vector<std::vector<PlannedTensor>> scalars(paths.size());
    for (std::size_t i = 0; i < paths.size(); ++i) {
      plan_.shards[i].file_name = paths[i].filename().string();
      plan_.shards[i].metadata = weights_.store->metadata(static_cast<int>(i));
    }
    for (const NamedTensors::Entry& entry : names_.entries()) {
      const auto shard_idx = static_cast<std::size_t>(entry.tensor.shard);
      PlannedShard& shard = plan_.shards[shard_idx];
      const auto found = uses_.find(entry.tensor.info);
      const Use use = found == uses_.end() ? Use{} : found->second;
      // What is dropped is read with the matrix that it belongs to, maybe in another shard.
      if (use.role != Role::kDropped) shard.source_bytes += entry.tensor.info->size_bytes();
      if (use.role == Role::kDropped) continue;
      if (use.role == Role::kCodes) {
        add_encoded_tensors(shard, outputs_[static_cast<std::size_t>(use.output)]);
      } else {
        add_copy(shard, entry, use);
      }
      if (use.output >= 0) {
        add_scalars(scalars[shard_idx], outputs_[static_cast<std::size_t>(use.output)]);
      }
    }
    std::vector<PlannedShard> kept;
    for (std::size_t i = 0; i < plan_.shards.size(); ++i) {
      PlannedShard& shard = plan_.shards[i];
      append_scalars(shard, std::move(scalars[i]));
      for (const PlannedTensor& tensor : shard.tensors) {
        shard.output_bytes += *tensor_bytes(tensor.declaration.dtype, tensor.declaration.shape);
      }
      if (!shard.tensors.empty()) kept.push_back(std::move(shard));
    }
    plan_.shards = std::move(kept);
  }

  // Behind them only what would misalign them.
  static void append_scalars(PlannedShard& shard, std::vector<PlannedTensor> scalars) {
    std::vector<PlannedTensor> aligned, odd;
    for (PlannedTensor& tensor : shard.tensors) {
      const TensorDeclaration& declaration = tensor.declaration;
      const std::int64_t bytes = *tensor_bytes(declaration.dtype, declaration.shape);
      // An encoded matrix is not torn apart: its codes are a multiple where its scales are one.
      const bool follows_codes = tensor.bytes == PlannedTensor::Bytes::kBlockScales;
      const bool is_odd = follows_codes ? !odd.empty() && odd.back().matrix == tensor.matrix
                          : tensor.bytes == PlannedTensor::Bytes::kCodes
                              ? bytes / kCodesPerScale % kScalarBytes != 0
                              : bytes % kScalarBytes != 0;
      (is_odd ? odd : aligned).push_back(std::move(tensor));
    }
    std::stable_sort(odd.begin(), odd.end(), [](const PlannedTensor& a, const PlannedTensor& b) {
      return dtype_bytes(a.declaration.dtype) > dtype_bytes(b.declaration.dtype);
    });
    shard.tensors = std::move(aligned);
    for (PlannedTensor& tensor : scalars) shard.tensors.push_back(std::move(tensor));
    for (PlannedTensor& tensor : odd) shard.tensors.push_back(std::move(tensor));
  }

  void add_encoded_tensors(PlannedShard& shard, const Nvfp4Output& output) {
    const NamedMatrix& matrix = plan_.matrices[static_cast<std::size_t>(output.encoded)].matrix;
    const std::int64_t rows = matrix.view.rows, cols = matrix.view.cols;
    PlannedTensor& codes = shard.tensors.emplace_back();
    codes.declaration = {sibling_name(output.name, target_.codes), DType::kU8, {rows, cols / 2}};
    codes.bytes = PlannedTensor::Bytes::kCodes;
    codes.matrix = output.encoded;
    PlannedTensor& scales = shard.tensors.emplace_back();
    scales.declaration = {sibling_name(output.name, target_.block_scales),
                          DType::kE4M3,
                          {rows, cols / kNvfp4QuantBlock}};
    scales.bytes = PlannedTensor::Bytes::kBlockScales;
    scales.matrix = output.encoded;
  }

  void add_copy(PlannedShard& shard, const NamedTensors::Entry& entry, const Use& use) {
    PlannedTensor& copy = shard.tensors.emplace_back();
    copy.declaration = {std::string(entry.official), entry.tensor.info->dtype,
                        entry.tensor.info->shape};
    copy.stored = entry.tensor;
    copy.is_nvfp4_scales = use.role == Role::kKeptScales;
    copy.is_weights = entry.official.ends_with(kWeight) ||
                      by_name_.count(entry.official.substr(0, entry.official.rfind('.'))) > 0;
    if (use.role != Role::kKeptCodes) return;
    copy.declaration.name =
        sibling_name(outputs_[static_cast<std::size_t>(use.output)].name, target_.codes);
  }

  void add_scalars(std::vector<PlannedTensor>& scalars, const Nvfp4Output& output) {
    const Shape shape = options_.layout == Nvfp4Layout::kModelOpt ? Shape{} : Shape{1};
    PlannedTensor& global = scalars.emplace_back();
    global.declaration = {sibling_name(output.name, target_.global_scale), DType::kF32, shape};
    if (output.encoded >= 0) {
      global.bytes = PlannedTensor::Bytes::kGlobalScale;
      global.matrix = output.encoded;
    } else {
      global.bytes = PlannedTensor::Bytes::kScalar;
      global.scalar = kept_scalar(*output.global_scale, output);
    }
    if (!output.input_scale) return;
    PlannedTensor& input = scalars.emplace_back();
    input.declaration = {sibling_name(output.name, target_.input_scale), DType::kF32, shape};
    input.bytes = PlannedTensor::Bytes::kScalar;
    input.scalar = output.source_input_scale
                       ? kept_scalar(*output.source_input_scale, output)
                       : stored_scale(*output.input_scale, options_.layout, output.name);
  }

  // Of a matrix that is not encoded: the source's bits where the layout stays.
  float kept_scalar(const StoredTensor& scalar, const Nvfp4Output& output) const {
    if (output.source == options_.layout) return read_scalar(scalar);
    return stored_scale(decoded(scalar, output.source), options_.layout, output.name);
  }

  // ---- formats

  void add_formats(const std::vector<NamedMatrix>& matrices) {
    std::unordered_map<std::string_view, const Nvfp4Output*> nvfp4;
    for (const Nvfp4Output& output : outputs_) nvfp4.emplace(output.name, &output);
    for (const NamedMatrix& matrix : matrices) {
      const auto found = nvfp4.find(matrix.name);
      const bool is_nvfp4 = found != nvfp4.end();
      plan_.formats.push_back(
          {matrix.name, is_nvfp4 ? Format::kNvfp4 : matrix.view.format,
           matrix.view.format == Format::kE4m3 && matrix.view.scale_dtype == DType::kE8M0,
           is_nvfp4 && found->second->input_scale.has_value()});
    }
    add_unbound_formats(nvfp4);
  }

  // Draft stages that are not bound.
  void add_unbound_formats(const std::unordered_map<std::string_view, const Nvfp4Output*>& nvfp4) {
    for (const NamedTensors::Entry& entry : names_.entries()) {
      if (!entry.official.starts_with(kDraftPrefix) || weights_.draft) continue;
      const TensorInfo& info = *entry.tensor.info;
      const bool is_packed = entry.official.ends_with(kCompressedTensorsNames.codes);
      if (!is_packed && !entry.official.ends_with(kWeight)) continue;
      const std::string name(entry.official.substr(0, entry.official.rfind('.')));
      const auto found = nvfp4.find(name);
      if (found != nvfp4.end()) {
        plan_.formats.push_back(
            {name, Format::kNvfp4, false, found->second->input_scale.has_value()});
      } else if (info.dtype == DType::kI8) {
        plan_.formats.push_back({name, Format::kMxfp4});
      } else if (info.dtype == DType::kE4M3) {
        const auto scale = find(name, kTileScaleNames[0]);
        plan_.formats.push_back({name, Format::kE4m3, scale && scale->info->dtype == DType::kE8M0});
      }
    }
  }

  const ModelWeights& weights_;
  const NamedTensors& names_;
  const PlanOptions& options_;
  const Nvfp4Names& target_;
  QuantizePlan plan_;
  std::vector<Nvfp4Output> outputs_;
  std::unordered_map<const TensorInfo*, Use> uses_;
  std::unordered_map<std::string_view, const NamedMatrix*> by_name_;
};

}  // namespace

std::int64_t QuantizePlan::source_bytes() const {
  std::int64_t sum = 0;
  for (const PlannedShard& shard : shards) sum += shard.source_bytes;
  return sum;
}

std::int64_t QuantizePlan::output_bytes() const {
  std::int64_t sum = 0;
  for (const PlannedShard& shard : shards) sum += shard.output_bytes;
  return sum;
}

QuantizePlan make_plan(const ModelWeights& weights, const NamedTensors& names,
                       const PlanOptions& options) {
  return Planner(weights, names, options).make();
}

}  // namespace dsv4
