#include "quantizer/report.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <vector>

namespace dsv4 {
namespace {

using Json = nlohmann::ordered_json;

void merge(const ReportEntry& part, ReportEntry& sum) {
  sum.matrices += part.matrices;
  sum.sources.insert(part.sources.begin(), part.sources.end());
  sum.tally.merge(part.tally);
}

void add_entry(const ReportEntry& entry, Json& json) {
  json["matrices"] = entry.matrices;
  json["sources"] = Json::array();
  for (const Format format : entry.sources) json["sources"].push_back(to_string(format));
  json["exact_share"] = entry.tally.exact_share();
  json["relative_error"] = entry.tally.relative_error();
  json["cosine"] = entry.tally.cosine();
  const Json tally = to_json(entry.tally);
  for (const auto& [name, value] : tally.items()) json[name] = value;
}

// A share that is not all of it never reads as if it were: digits are cut, not rounded.
std::string percent_text(double share) {
  return share == 1 ? "100 %" : fmt::format("{:.2f} %", std::floor(share * 1e4) / 1e2);
}
std::string cosine_text(double cosine) {
  return cosine == 1 ? "1" : fmt::format("{:.6f}", std::floor(cosine * 1e6) / 1e6);
}
std::string error_text(double relative_error) {
  return relative_error == 0 ? "0" : fmt::format("{:#.3g}", relative_error);
}

constexpr std::size_t kNumColumns = 10;
using TableRow = std::array<std::string, kNumColumns>;

TableRow table_row(std::string_view name, const ReportEntry& entry) {
  std::string sources;
  for (const Format format : entry.sources) {
    if (!sources.empty()) sources += '+';
    sources += to_string(format);
  }
  const ErrorTally& tally = entry.tally;
  return {std::string(name),
          sources,
          fmt::format("{}", entry.matrices),
          percent_text(tally.exact_share()),
          error_text(tally.relative_error()),
          cosine_text(tally.cosine()),
          error_text(tally.worst.relative_error),
          fmt::format("{}", tally.reencoded_blocks),
          fmt::format("{}", tally.zeroed_blocks),
          fmt::format("{}", tally.saturated_values)};
}

// Names to the left, numbers to the right.
std::string print_table(const std::vector<TableRow>& rows) {
  std::array<std::size_t, kNumColumns> widths{};
  for (const TableRow& row : rows) {
    for (std::size_t i = 0; i < kNumColumns; ++i) widths[i] = std::max(widths[i], row[i].size());
  }
  std::string text;
  for (const TableRow& row : rows) {
    for (std::size_t i = 0; i < kNumColumns; ++i) {
      text += i < 2 ? fmt::format("{:<{}}", row[i], widths[i])
                    : fmt::format("{:>{}}", row[i], widths[i]);
      text += i + 1 < kNumColumns ? "  " : "\n";
    }
  }
  return text;
}

std::string sentences(const ErrorTally& tally) {
  std::string text;
  if (tally.lossless()) {
    text += "Nothing was lost: every value decodes to the bits of its source.\n";
  }
  if (tally.cast_blocks > 0) {
    text += fmt::format("{} of {} blocks of 16 were cast: their codes are the source's.\n",
                        tally.cast_blocks, tally.quant_blocks);
  }
  if (tally.reencoded_blocks > 0) {
    text += fmt::format(
        "{} blocks of FP4 sources were encoded again: their scales have no exact counterpart under "
        "the new global scale.\n",
        tally.reencoded_blocks);
  }
  if (tally.zeroed_blocks > 0) {
    text += fmt::format("{} blocks became zero: beside the largest value they are too small.\n",
                        tally.zeroed_blocks);
  }
  if (tally.saturated_values > 0) {
    text += fmt::format("{} values were cut off at the largest code.\n", tally.saturated_values);
  }
  if (tally.worst.relative_error > 0) {
    text += fmt::format("Worst block: {}, row {}, block {}, relative error {}.\n",
                        tally.worst.matrix, tally.worst.row, tally.worst.quant_block,
                        error_text(tally.worst.relative_error));
  }
  return text;
}

}  // namespace

void QuantizationReport::add(const NamedMatrix& matrix, const ErrorTally& tally) {
  merge({1, {matrix.view.format}, tally}, entries_[{matrix.kind, matrix.layer}]);
}

ReportEntry QuantizationReport::total(MatrixKind kind) const {
  ReportEntry sum;
  for (const auto& [key, entry] : entries_) {
    if (key.first == kind) merge(entry, sum);
  }
  return sum;
}

ReportEntry QuantizationReport::total() const {
  ReportEntry sum;
  for (const MatrixKind kind : kinds()) merge(total(kind), sum);
  return sum;
}

std::vector<MatrixKind> QuantizationReport::kinds() const {
  std::vector<MatrixKind> kinds;
  for (const auto& [key, entry] : entries_) {
    if (kinds.empty() || kinds.back() != key.first) kinds.push_back(key.first);
  }
  return kinds;
}

Json to_json(const QuantizationReport& report) {
  Json json;
  add_entry(report.total(), json["total"]);
  json["kinds"] = Json::array();
  for (const MatrixKind kind : report.kinds()) {
    Json& of_kind = json["kinds"].emplace_back();
    of_kind["kind"] = to_string(kind);
    add_entry(report.total(kind), of_kind);
    Json& layers = of_kind["layers"] = Json::array();
    for (const auto& [key, entry] : report.entries()) {
      if (key.first != kind) continue;
      Json& of_layer = layers.emplace_back();
      of_layer["layer"] = key.second;
      add_entry(entry, of_layer);
    }
  }
  return json;
}

std::string report_table(const QuantizationReport& report) {
  std::vector<TableRow> rows = {{"", "from", "matrices", "exact", "error", "cosine", "worst block",
                                 "encoded again", "zeroed", "saturated"}};
  for (const MatrixKind kind : report.kinds()) {
    rows.push_back(table_row(to_string(kind), report.total(kind)));
  }
  const ReportEntry total = report.total();
  if (rows.size() != 2) rows.push_back(table_row("total", total));
  return print_table(rows) + sentences(total.tally);
}

}  // namespace dsv4
