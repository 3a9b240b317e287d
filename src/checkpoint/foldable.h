// foldable.h: whether 4-bit weights are exact in FP8: their block scales, folded into the codes,
// give E4M3 values. Scans the scales of one matrix, and of a whole model. Who computes with the
// answer: model/precision.h.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "checkpoint/matrix_list.h"
#include "checkpoint/weights.h"

namespace dsv4 {

// E2M1 codes reach from 0.5 to 6 in steps of 0.5 at the small end; E4M3's steps begin at 2^-9 and
// its values end at 448. Scales of 2^-8 to 2^6 fit between.
inline constexpr int kMaxFoldableSpan = 14;

// The block scales of a matrix in MXFP4 or NVFP4. Scales of 0 are left out: they widen no span.
struct ScaleExponents {
  bool are_powers_of_two = true;  // all but 0; of the others low and high say nothing
  int low = 0, high = -1;         // scales are 2^low .. 2^high; low > high: there is none

  bool empty() const { return low > high; }
  int span() const { return empty() ? 0 : high - low; }
  bool fold() const { return are_powers_of_two && span() <= kMaxFoldableSpan; }
  void include(int exponent);
};

// Reads all scales of `weight`, which is kMxfp4 or kNvfp4 and has data.
ScaleExponents scan_block_scales(const MatrixView& weight);

// True if all block scales of an NVFP4 matrix are powers of two whose exponents span at most
// kMaxFoldableSpan steps: code * block_scale is then an E4M3 value times one power of two. Reads
// all scales. False for other formats and for a matrix without data.
bool is_foldable(const MatrixView& weight);

// How one matrix can be multiplied in FP8 without loss.
struct MatrixFold {
  NamedMatrix matrix;
  std::optional<ScaleExponents> exponents;  // of 4-bit formats, without the global scale
  // FP8 is; BF16 and FP32 are not; 4-bit formats are if their scales fold.
  bool is_exact_in_fp8 = false;
};

// Matrices of one kind, of the trunk or of the draft block, in one format.
struct FoldGroup {
  MatrixKind kind = MatrixKind::kAttention;
  bool is_draft = false;
  Format format = Format::kBf16;
  std::int64_t matrices = 0, exact_in_fp8 = 0;
  std::optional<int> widest_span;  // of one matrix whose scales are powers of two
  // From the smallest to the largest scale of the group, global scales included; none where they
  // are not all powers of two, and for formats without.
  std::optional<int> whole_span;

  bool is_exact_in_fp8() const { return exact_in_fp8 == matrices; }
};

struct FoldReport {
  std::vector<FoldGroup> groups;     // in the order of the list
  std::vector<MatrixFold> matrices;  // list_matrices'

  // One line for the whole model, which only matrices in quantised formats decide: "exact in FP8:
  // all 350 quantised matrices".
  std::string answer() const;
};

// Scans every matrix of a model that has data. `progress`, if not null, is called after each matrix
// with the bytes of block scales read so far and in all; what it throws ends the scan.
FoldReport scan_folds(const ModelWeights& weights,
                      const std::function<void(std::int64_t, std::int64_t)>& progress = nullptr);

}  // namespace dsv4
