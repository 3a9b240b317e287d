// model_dir.h: what was given in place of a model directory, in words that fit it.
#pragma once

#include <filesystem>

namespace dsv4 {

// Throws Error unless `dir` is a directory with a config.json: kUnsupported for GGUF (a file by its
// ending or its first bytes, or a directory that holds one), else kNotFound, kBadRequest, kIo.
void check_model_dir(const std::filesystem::path& dir);

// Throws Error kUnsupported if the weights in `dir` are GGUF and there are no safetensors.
void refuse_gguf_weights(const std::filesystem::path& dir);

}  // namespace dsv4
