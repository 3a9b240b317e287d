// random_checkpoint.h: model directories of any size with random weights or none, valid in every
// format, for tests and benches of memory and speed. What such a model says means nothing.
#pragma once

#include <cstdint>
#include <filesystem>

#include "checkpoint/layout.h"
#include "checkpoint/model_config.h"

namespace dsv4 {

// Flash scaled down: every mechanism, hidden 1024, 32 experts of 1024 inner values, and as many
// layers as come nearest to `payload_bytes` with `formats`, three at least.
ModelConfig scaled_flash_config(std::int64_t payload_bytes,
                                const LayoutFormats& formats = kOfficialFormats);

// Writes config.json and model.safetensors into `dir`, which is created. Holds one tensor at a
// time. The same seed gives the same bytes. Weights are small enough for finite logits.
// Returns the payload in bytes. Throws Error: kIo.
std::int64_t write_random_checkpoint(const std::filesystem::path& dir, const ModelConfig& config,
                                     const LayoutFormats& formats, std::uint64_t seed);

// The same files, all weights 0: the data is a hole, which takes neither time nor disk space,
// whatever its size, and is read like any other file. E8M0 scales stand behind everything else, far
// from their matrices. Returns the payload in bytes. Throws std::filesystem::filesystem_error, as
// for a size that the file system cannot have.
std::int64_t write_sparse_checkpoint(const std::filesystem::path& dir, const ModelConfig& config,
                                     const LayoutFormats& formats);

}  // namespace dsv4
