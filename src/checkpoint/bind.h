// bind.h: from a checkpoint's tensors to the weights of a model, strictly: every tensor is used,
// known and unused, or an error; every weight is filled.
//
// The format of a matrix (BF16, F32, FP8, MXFP4, NVFP4) is decided for each by its dtype and its
// sibling tensors, never by a flag in config.json, and so is the number of a layer's experts
// (docs/formats.md). Which published checkpoints load: docs/checkpoints.md.
#pragma once

#include <filesystem>
#include <memory>

#include "checkpoint/model_config.h"
#include "checkpoint/weights.h"
#include "dsv4/types.h"
#include "io/tensor_store.h"

namespace dsv4 {

struct LoadOptions {
  bool with_draft = true;  // bind the draft block if the checkpoint has one
  LoadProgressCallback progress = nullptr;
};

// Binds all weights. Checks names, dtypes and shapes against the config; where the store has data,
// also the ids of the hash tables, the global and input scales (finite, above 0), FP8's scales in
// FP32 or BF16, and that norms, the parameters in FP32 (biases, sinks, hyper-connections, `ape`)
// and the indexer's `weights_proj`, if plain, are finite. Other weights are not read. A store made
// from headers gives a model without data.
// Throws Error: kBadCheckpoint naming the tensors (missing, unknown, wrong dtype or shape, bad
// value), kUnsupported (another naming or quantisation scheme, named).
ModelWeights bind_weights(const ModelConfig& config, std::shared_ptr<const TensorStore> store,
                          const LoadOptions& options = {});

// Reads config.json, generation_config.json and all tensors of a model directory; what config.json
// and hf_quant_config.json say of formats is compared to the tensors, and contradictions are noted.
// Throws Error: kNotFound, kBadCheckpoint, kUnsupported, kIo.
std::shared_ptr<const ModelWeights> load_checkpoint(const std::filesystem::path& dir,
                                                    const LoadOptions& options = {});

}  // namespace dsv4
