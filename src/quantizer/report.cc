#include "quantizer/report.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "quantizer/counted.h"

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

using TableRow = std::vector<std::string>;

std::string source_names(const ReportEntry& entry) {
  std::string names;
  for (const Format format : entry.sources) {
    if (!names.empty()) names += '+';
    names += to_string(format);
  }
  return names;
}

TableRow table_row(std::string_view name, const ReportEntry& entry) {
  const ErrorTally& tally = entry.tally;
  return {std::string(name),
          source_names(entry),
          fmt::format("{}", entry.matrices),
          percent_text(tally.exact_share()),
          error_text(tally.relative_error()),
          cosine_text(tally.cosine()),
          error_text(tally.worst.relative_error),
          fmt::format("{}", tally.reencoded_blocks)};
}

// What few models have, so that it has a table of its own.
TableRow limits_row(std::string_view name, const ReportEntry& entry) {
  const ErrorTally& tally = entry.tally;
  TableRow row{std::string(name)};
  for (const std::int64_t count : {tally.scales_too_large, tally.scales_too_small,
                                   tally.zeroed_blocks, tally.saturated_values}) {
    row.push_back(fmt::format("{}", count));
  }
  return row;
}

bool reached_limits(const ErrorTally& tally) {
  return tally.scales_too_large > 0 || tally.scales_too_small > 0 || tally.zeroed_blocks > 0 ||
         tally.saturated_values > 0;
}

// Names, in the first columns, to the left, numbers to the right.
std::string print_table(const std::vector<TableRow>& rows, std::size_t num_names) {
  std::vector<std::size_t> widths(rows[0].size());
  for (const TableRow& row : rows) {
    for (std::size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], row[i].size());
  }
  std::string text;
  for (const TableRow& row : rows) {
    for (std::size_t i = 0; i < row.size(); ++i) {
      text += i < num_names ? fmt::format("{:<{}}", row[i], widths[i])
                            : fmt::format("{:>{}}", row[i], widths[i]);
      text += i + 1 < row.size() ? "  " : "\n";
    }
  }
  return text;
}

std::string sentences(const ErrorTally& tally) {
  std::string text;
  if (tally.lossless()) {
    text += "Nothing was lost: every value decodes to the bits of its source.\n";
  }
  if (!reached_limits(tally)) {
    text += "No scale was out of range, no block became zero, no value was cut off.\n";
  }
  if (tally.cast_blocks > 0) {
    text += fmt::format("{} of {} of 16 were cast: their codes are the source's.\n",
                        tally.cast_blocks, counted(tally.quant_blocks, "block", "blocks"));
  }
  if (tally.reencoded_blocks > 0) {
    text += fmt::format(
        "{} encoded again: no exact scale under the new global one.\n",
        counted(tally.reencoded_blocks, "block of FP4 sources was", "blocks of FP4 sources were"));
  }
  if (tally.scales_too_small > 0) {
    text += fmt::format("{} wanted a scale below E4M3's smallest.\n",
                        counted(tally.scales_too_small, "block", "blocks"));
  }
  if (tally.scales_too_large > 0) {
    text += fmt::format("{} wanted a scale above 448, E4M3's largest.\n",
                        counted(tally.scales_too_large, "block", "blocks"));
  }
  if (tally.zeroed_blocks > 0) {
    text += fmt::format("{} became zero.\n", counted(tally.zeroed_blocks, "block", "blocks"));
  }
  if (tally.saturated_values > 0) {
    text += fmt::format("{} cut off at the largest code.\n",
                        counted(tally.saturated_values, "value was", "values were"));
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
  std::vector<TableRow> rows = {
      {"", "from", "matrices", "exact", "error", "cosine", "worst block", "encoded again"}};
  std::vector<TableRow> limits = {
      {"", "scales too large", "too small", "zeroed blocks", "values cut off"}};
  for (const MatrixKind kind : report.kinds()) {
    const ReportEntry entry = report.total(kind);
    rows.push_back(table_row(to_string(kind), entry));
    if (reached_limits(entry.tally)) limits.push_back(limits_row(to_string(kind), entry));
  }
  const ReportEntry total = report.total();
  if (rows.size() != 2) rows.push_back(table_row("total", total));
  std::string text = print_table(rows, 2);
  if (limits.size() > 1) text += print_table(limits, 1);
  return text + sentences(total.tally);
}

}  // namespace dsv4
