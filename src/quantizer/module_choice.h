// module_choice.h: which matrices of a model are to be quantised, from a user's words.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "checkpoint/matrix_list.h"

namespace dsv4 {

// For each of `matrices`, whether it is chosen by one of `modules`: experts, attention,
// shared_experts, head, all (these four), a matrix's name, or a pattern of names in which * stands
// for any text. The compressors' projections and the indexer's head weights, which DeepSeek keeps
// in BF16, are chosen by patterns only. Draft blocks are never chosen: they keep their format, as
// in NVIDIA's releases.
// Throws Error kBadRequest for a word that chooses nothing, when there is none, and where the gate
// and the up of an expert of the trunk would both be NVFP4 with different global scales.
std::vector<bool> choose_matrices(std::span<const NamedMatrix> matrices,
                                  std::span<const std::string> modules);

}  // namespace dsv4
