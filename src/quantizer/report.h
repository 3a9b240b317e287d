// report.h: the truth about a quantisation, by kind of matrix and layer: as JSON, as a table for a
// terminal, as a plot. What was measured: error_tally.h; where it is written: quantize.h.
#pragma once

#include <cstdint>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "checkpoint/matrix_list.h"
#include "quantizer/error_tally.h"
#include "tensor/matrix_view.h"

namespace dsv4 {

// Matrices of one kind in one layer.
struct ReportEntry {
  std::int64_t matrices = 0;
  std::set<Format> sources;  // that the matrices came in
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
  std::vector<MatrixKind> kinds() const;  // that have an entry, each once
  // Over all layers of a kind, or over everything.
  ReportEntry total(MatrixKind kind) const;
  ReportEntry total() const;

 private:
  std::map<Key, ReportEntry> entries_;
};

// {"total": {...}, "kinds": [{"kind", ..., "layers": [{"layer", ...}]}]}. Every entry has its
// matrices, sources, derived figures and the members of its tally's JSON. Nothing in it depends on
// the machine or the time, so that two runs give the same bytes. Callers add members of their own.
nlohmann::ordered_json to_json(const QuantizationReport& report);

// A line a kind, the total; a second table of the kinds that reached a limit, if there are any:
// scales out of range, zeroed blocks, values cut off; then a sentence for whatever a user must
// know. At most 100 columns wide up to billions. Ends with a newline.
std::string report_table(const QuantizationReport& report);

// Relative RMS error by layer, a line a kind, as a complete SVG document (report_plot.cc).
std::string report_plot_svg(const QuantizationReport& report);

}  // namespace dsv4
