// bind.cc: the door of checkpoint loading; see bind.h.
#include "checkpoint/bind.h"

#include <fmt/format.h>

#include <array>
#include <utility>

#include "base/error.h"
#include "checkpoint/binder.h"
#include "checkpoint/json_fields.h"

namespace dsv4 {
namespace {

// A part of a tensor's name by which a scheme that we do not read is known.
struct ForeignMark {
  enum class Place { kStart, kEnd } place;
  std::string_view text;
  std::string_view what;
};

constexpr std::array kForeignMarks{
    ForeignMark{ForeignMark::Place::kStart, "model.",
                "names as in Hugging Face transformers, vLLM or MLX; only DeepSeek's own names "
                "(layers.0.attn.wq_a.weight) are read"},
    ForeignMark{ForeignMark::Place::kEnd, ".weight_packed",
                "NVFP4 of compressed-tensors (weight_packed, weight_global_scale); only ModelOpt's "
                "(weight, weight_scale, weight_scale_2) is read"},
    ForeignMark{ForeignMark::Place::kEnd, ".weight_scale_inv",
                "FP8 scales called weight_scale_inv; only DeepSeek's own name (scale) is read"},
    ForeignMark{ForeignMark::Place::kStart, "vision.", "DeepSeek-V4 Vision"},
    ForeignMark{ForeignMark::Place::kEnd, ".ffn.gate.bias_vl", "DeepSeek-V4 Vision"},
    ForeignMark{ForeignMark::Place::kStart, "engram.", "DeepSeek-V4.1"},
};

void refuse_foreign_tensors(const TensorStore& store) {
  for (const StoredTensor& tensor : store.tensors()) {
    const std::string_view name = tensor.info->name;
    for (const ForeignMark& mark : kForeignMarks) {
      const bool matches = mark.place == ForeignMark::Place::kStart ? name.starts_with(mark.text)
                                                                    : name.ends_with(mark.text);
      if (matches) {
        fail(ErrorCode::kUnsupported, "tensor {}: {} is not supported", in_quotes(name), mark.what);
      }
    }
  }
}

bool has_draft_tensors(const TensorStore& store) {
  for (const StoredTensor& tensor : store.tensors()) {
    if (tensor.info->name.starts_with(kDraftPrefix)) return true;
  }
  return false;
}

[[noreturn]] void refuse_gguf(const std::filesystem::path& path) {
  fail(ErrorCode::kUnsupported,
       "{}: GGUF is not supported; use the model's safetensors files with their config.json",
       path.string());
}

// Throws for what is not a directory with a config.json, in words that fit what was given.
void check_model_dir(const std::filesystem::path& dir) {
  namespace fs = std::filesystem;
  std::error_code error;
  const fs::file_status status = fs::status(dir, error);
  require(status.type() != fs::file_type::not_found, ErrorCode::kNotFound,
          "{}: no such model directory", dir.string());
  if (!fs::is_directory(status)) {
    if (dir.extension() == ".gguf") refuse_gguf(dir);
    fail(ErrorCode::kBadRequest, "{}: not a directory; give the directory that holds config.json",
         dir.string());
  }
  if (fs::exists(dir / "config.json", error)) return;
  fs::directory_iterator entries(dir, error);
  require(!error, ErrorCode::kIo, "{}: {}", dir.string(), error.message());
  for (; entries != fs::directory_iterator(); entries.increment(error)) {
    if (error) break;
    if (entries->path().extension() == ".gguf") refuse_gguf(entries->path());
  }
  fail(ErrorCode::kNotFound, "{}: there is no config.json; it is not a model directory",
       dir.string());
}

}  // namespace

ModelWeights bind_weights(const ModelConfig& config, std::shared_ptr<const TensorStore> store,
                          const LoadOptions& options) {
  check(config, "config.json");
  refuse_foreign_tensors(*store);
  ModelWeights weights;
  weights.config = config;
  weights.store = std::move(store);
  const TensorStore& tensors = *weights.store;
  std::vector<std::string>& notes = weights.report.notes;

  std::string_view why_no_draft;
  bool bind_draft = false;
  if (config.has_dspark || tensors.find(kDsparkMark)) {
    why_no_draft = "DSpark draft stages";
    if (options.with_draft)
      notes.push_back("The DSpark draft stages are not supported and not used.");
  } else if (config.num_draft_blocks > 0) {
    if (!options.with_draft) {
      why_no_draft = "draft block, switched off";
    } else if (has_draft_tensors(tensors)) {
      bind_draft = true;
    } else {
      notes.push_back("config.json has a draft block, the tensors have none: it was removed.");
    }
  }

  Binder binder(tensors, weights);
  visit_trunk(config, binder, weights);
  if (bind_draft) visit_draft(config, binder, weights.draft.emplace());
  binder.finish(why_no_draft);
  return weights;
}

std::shared_ptr<const ModelWeights> load_checkpoint(const std::filesystem::path& dir,
                                                    const LoadOptions& options) {
  check_model_dir(dir);
  const ModelConfig config = load_model_config(dir);
  GenerationDefaults generation = load_generation_defaults(dir);
  for (int id : generation.eos_ids) {
    require(id >= 0 && id < config.vocab_size, ErrorCode::kBadCheckpoint,
            "{}: eos_token_id is {}; it must be an integer from 0 to {}",
            (dir / "generation_config.json").string(), id, config.vocab_size - 1);
  }
  auto store = std::make_shared<const TensorStore>(TensorStore::open(dir));
  try {
    auto weights = std::make_shared<ModelWeights>(bind_weights(config, std::move(store), options));
    weights->generation = std::move(generation);
    return weights;
  } catch (const Error& e) {
    fail(e.code(), "{}: {}", dir.string(), e.what());
  }
}

}  // namespace dsv4
