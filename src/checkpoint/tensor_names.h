// tensor_names.h: the spellings of tensor names in published checkpoints, as tables, and the index
// that makes a store answer to DeepSeek's own names whatever its files call them.
//
// Which tensors a model has is tensor_table.h; what a scale means is binder.h.
#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "io/name_index.h"
#include "io/tensor_store.h"

namespace dsv4 {

// The official name of a tensor that a checkpoint calls `published`: DeepSeek's names, those of
// Hugging Face transformers 5.10 to 5.17, NeMo and vLLM, and what DeepSeek's inference/convert.py
// accepts; also mixtures. A name of none of them comes back unchanged.
std::string official_name(std::string_view published);

// Why a tensor of this official name cannot be read at all ("GGUF names; ..."); empty if it can.
std::string_view foreign_scheme(std::string_view official);

// Whether this is a draft block's copy of the trunk's embedding or head, which many converters
// write and nobody needs (DeepSeek's convert.py skips them).
bool is_draft_copy(std::string_view official);

// The scale of an FP8 or MXFP4 matrix X, beside X.weight; the spelling weight_scale_inv has become
// scale in the official name.
inline constexpr std::array<std::string_view, 2> kTileScaleNames{"scale", "weight_scale"};

// The tensors of an NVFP4 matrix X.
struct Nvfp4Names {
  std::string_view codes, block_scales, global_scale, input_scale;
  bool is_reciprocal;  // the file's global scales encode: ours are 1 / theirs
};
inline constexpr Nvfp4Names kModelOptNames{"weight", "weight_scale", "weight_scale_2",
                                           "input_scale", false};
inline constexpr Nvfp4Names kCompressedTensorsNames{
    "weight_packed", "weight_scale", "weight_global_scale", "input_global_scale", true};

enum class Nvfp4Layout : std::uint8_t { kModelOpt, kCompressedTensors };

constexpr const Nvfp4Names& nvfp4_names(Nvfp4Layout layout) {
  return layout == Nvfp4Layout::kModelOpt ? kModelOptNames : kCompressedTensorsNames;
}

// A store's tensors by official name.
class NamedTensors {
 public:
  struct Entry {
    std::string_view official;
    StoredTensor tensor;
  };

  // `store` outlives this. Throws Error: kBadCheckpoint (two tensors of one official name),
  // kUnsupported (foreign_scheme).
  explicit NamedTensors(const TensorStore& store);
  NamedTensors(const NamedTensors&) = delete;

  std::optional<StoredTensor> find(std::string_view official) const;
  const std::vector<Entry>& entries() const { return entries_; }  // in the order of the store
  bool has_prefix(std::string_view prefix) const;
  // Whether any file name differs from the official one.
  bool is_renamed() const { return !renamed_.empty(); }

 private:
  std::vector<Entry> entries_;
  std::deque<std::string> renamed_;  // stable text of the entries that are not spelled officially
  NameIndex by_name_;
};

}  // namespace dsv4
