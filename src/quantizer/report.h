// report.h: the truth about a quantisation, by kind of matrix and layer: as JSON, as a table for a
// terminal, as a plot. What was measured: error_tally.h; where it is written: quantize.h.
#pragma once

#include <cstdint>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <utility>

#include "checkpoint/matrix_list.h"
#include "quantizer/error_tally.h"

namespace dsv4 {

// Matrices of one kind in one layer.
struct ReportEntry {
  std::int64_t matrices = 0;
  std::string sources;  // formats that the matrices came in: "BF16", or several: "FP8+MXFP4"
  ErrorTally tally;
};

// Order of adding decides the last bits of sums; adding in the order of list_matrices makes a
// report repeatable.
class QuantizationReport {
 public:
  // Layer -1 is the head's.
  using Key = std::pair<MatrixKind, int>;

  void add(const NamedMatrix& matrix, const ErrorTally& tally);

  const std::map<Key, ReportEntry>& entries() const { return entries_; }
  // Over all layers of a kind, or over everything.
  ReportEntry total(MatrixKind kind) const;
  ReportEntry total() const;

 private:
  std::map<Key, ReportEntry> entries_;
};

// {"total": {...}, "kinds": [{"kind", ..., "layers": [{"layer", ...}]}]}; nothing in it depends on
// the machine or the time, so that two runs give the same bytes. Callers add members of their own.
nlohmann::ordered_json to_json(const QuantizationReport& report);

// One line a kind, a total, then a sentence for whatever a user must know (nothing lost; blocks
// that were encoded again, zeroed or saturated; the worst block). Ends with a newline.
std::string report_table(const QuantizationReport& report);

// Relative RMS error by layer, a line a kind, as a complete SVG document.
std::string report_plot_svg(const QuantizationReport& report);

}  // namespace dsv4
