#include "quantizer/error_tally.h"

#include <algorithm>
#include <cmath>
#include <string_view>

#include "base/error.h"

namespace dsv4 {
namespace {

// Calls visit(name, member) for every number of a tally, in the order of the JSON.
template <class Tally, class Visit>
void visit_numbers(Tally& tally, const Visit& visit) {
  visit("values", tally.values);
  visit("exact_values", tally.exact_values);
  visit("source_squares", tally.source_squares);
  visit("error_squares", tally.error_squares);
  visit("dot", tally.dot);
  visit("quant_blocks", tally.quant_blocks);
  visit("cast_blocks", tally.cast_blocks);
  visit("reencoded_blocks", tally.reencoded_blocks);
  visit("zeroed_blocks", tally.zeroed_blocks);
  visit("saturated_values", tally.saturated_values);
  visit("scales_too_large", tally.scales_too_large);
  visit("scales_too_small", tally.scales_too_small);
}

const nlohmann::json& member(const nlohmann::json& json, std::string_view name) {
  const auto it = json.is_object() ? json.find(name) : json.end();
  require(json.is_object() && it != json.end(), ErrorCode::kBadRequest,
          "an error tally has no member {}", name);
  return *it;
}

void read(const nlohmann::json& json, std::string_view name, std::int64_t& out) {
  const nlohmann::json& value = member(json, name);
  require(value.is_number_integer() && value >= 0, ErrorCode::kBadRequest,
          "an error tally's {} is no count", name);
  out = value.get<std::int64_t>();
}

void read(const nlohmann::json& json, std::string_view name, double& out) {
  const nlohmann::json& value = member(json, name);
  require(value.is_number(), ErrorCode::kBadRequest, "an error tally's {} is no number", name);
  out = value.get<double>();
}

}  // namespace

void ErrorTally::merge(const ErrorTally& other) {
  values += other.values;
  exact_values += other.exact_values;
  source_squares += other.source_squares;
  error_squares += other.error_squares;
  dot += other.dot;
  quant_blocks += other.quant_blocks;
  cast_blocks += other.cast_blocks;
  reencoded_blocks += other.reencoded_blocks;
  zeroed_blocks += other.zeroed_blocks;
  saturated_values += other.saturated_values;
  scales_too_large += other.scales_too_large;
  scales_too_small += other.scales_too_small;
  if (other.worst.relative_error > worst.relative_error) worst = other.worst;
}

double ErrorTally::exact_share() const {
  return values == 0 ? 1 : static_cast<double>(exact_values) / static_cast<double>(values);
}

double ErrorTally::relative_error() const {
  return error_squares == 0 ? 0 : std::sqrt(error_squares / source_squares);
}

double ErrorTally::cosine() const {
  // |decoded|^2 from |decoded - x|^2.
  const double decoded_squares = error_squares - source_squares + 2 * dot;
  if (error_squares == 0) return 1;
  // All of a source may have gone to zero; rounding can leave less than nothing then.
  if (!(decoded_squares > 0)) return 0;
  return std::min(1.0, dot / (std::sqrt(source_squares) * std::sqrt(decoded_squares)));
}

nlohmann::ordered_json to_json(const ErrorTally& tally) {
  nlohmann::ordered_json json;
  visit_numbers(tally, [&](const char* name, auto value) { json[name] = value; });
  if (tally.worst.relative_error > 0) {
    json["worst_block"] = {{"matrix", tally.worst.matrix},
                           {"row", tally.worst.row},
                           {"quant_block", tally.worst.quant_block},
                           {"relative_error", tally.worst.relative_error}};
  }
  return json;
}

ErrorTally error_tally_from_json(const nlohmann::json& json) {
  ErrorTally tally;
  visit_numbers(tally, [&](const char* name, auto& value) { read(json, name, value); });
  if (!json.contains("worst_block")) return tally;
  const nlohmann::json& worst = member(json, "worst_block");
  read(worst, "relative_error", tally.worst.relative_error);
  read(worst, "row", tally.worst.row);
  read(worst, "quant_block", tally.worst.quant_block);
  const nlohmann::json& name = member(worst, "matrix");
  require(name.is_string(), ErrorCode::kBadRequest, "an error tally's matrix is no string");
  tally.worst.matrix = name.get<std::string>();
  return tally;
}

}  // namespace dsv4
