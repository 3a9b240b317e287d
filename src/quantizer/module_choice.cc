#include "quantizer/module_choice.h"

#include <string_view>

#include "base/error.h"
#include "checkpoint/json_fields.h"
#include "checkpoint/quantization_claims.h"

namespace dsv4 {
namespace {

bool is_in_word(MatrixKind kind, std::string_view word) {
  if (word == "experts") return is_expert(kind);
  if (word == "attention") return kind == MatrixKind::kAttention;
  if (word == "shared_experts") return kind == MatrixKind::kSharedExpert;
  if (word == "head") return kind == MatrixKind::kHead;
  return word == "all" && (is_expert(kind) || kind == MatrixKind::kAttention ||
                           kind == MatrixKind::kSharedExpert || kind == MatrixKind::kHead);
}

// Engines read one global scale for an expert's gate and up, and take the gate's. They have one
// together where both are chosen.
void require_shared_scales(std::span<const NamedMatrix> matrices, const std::vector<bool>& chosen) {
  const auto is_nvfp4 = [&](std::size_t i) { return matrices[i].view.format == Format::kNvfp4; };
  for (std::size_t up = 1; up < matrices.size(); ++up) {
    const std::size_t gate = up - 1;  // list_matrices has it before its up
    if (matrices[up].kind != MatrixKind::kExpertUp || matrices[up].is_draft) continue;
    if (chosen[gate] == chosen[up] && (chosen[up] || !is_nvfp4(gate))) continue;
    const bool are_nvfp4 = is_nvfp4(gate) && is_nvfp4(up);
    const bool become_nvfp4 = (chosen[gate] || is_nvfp4(gate)) && (chosen[up] || is_nvfp4(up));
    const bool share =
        are_nvfp4 && *matrices[gate].view.global_scales == *matrices[up].view.global_scales;
    require(!become_nvfp4 || share, ErrorCode::kBadRequest,
            "modules: {} and {} would have different global scales, but engines take one for both; "
            "choose both, as experts does",
            matrices[gate].name, matrices[up].name);
  }
}

}  // namespace

std::vector<bool> choose_matrices(std::span<const NamedMatrix> matrices,
                                  std::span<const std::string> modules) {
  require(!modules.empty(), ErrorCode::kBadRequest,
          "no modules are named; name experts, attention, shared_experts, head, all or a pattern");
  std::vector<bool> chosen(matrices.size(), false);
  for (const std::string& word : modules) {
    bool chooses_any = false, fits_draft = false;
    for (std::size_t i = 0; i < matrices.size(); ++i) {
      const NamedMatrix& matrix = matrices[i];
      if (!is_in_word(matrix.kind, word) && !fits_pattern(matrix.name, word)) continue;
      fits_draft = fits_draft || matrix.is_draft;
      if (matrix.is_draft) continue;
      chosen[i] = chooses_any = true;
    }
    require(chooses_any || !fits_draft, ErrorCode::kBadRequest,
            "modules: {} fits matrices of the draft block only, which keeps its format",
            in_quotes(word));
    require(chooses_any, ErrorCode::kBadRequest,
            "modules: {} fits no matrix of this model; name experts, attention, shared_experts, "
            "head, all or a pattern such as layers.3.*",
            in_quotes(word));
  }
  require_shared_scales(matrices, chosen);
  return chosen;
}

}  // namespace dsv4
