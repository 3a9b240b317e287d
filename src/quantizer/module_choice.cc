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
  return chosen;
}

}  // namespace dsv4
