// error_tally.h: what an NVFP4 encoding lost against its source, as counts and sums that can be
// merged. Filling one: group_encoder.h; what a person reads: report.h.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>

namespace dsv4 {

// The quant block of 16 whose decoded values are farthest from their source.
struct WorstQuantBlock {
  double relative_error = 0;  // RMS of the error over RMS of the source; 0: no block lost anything
  std::string matrix;         // as NamedMatrix::name
  std::int64_t row = 0;
  std::int64_t quant_block = 0;  // along K

  bool operator==(const WorstQuantBlock&) const = default;
};

// Sums are FP64. They do not depend on threads or on how a matrix was cut as long as each matrix
// has a tally of its own, filled in ascending order of rows, and tallies are merged in one order.
struct ErrorTally {
  std::int64_t values = 0;
  std::int64_t exact_values = 0;  // decode to the bits of the source, the sign of zero included
  double source_squares = 0;      // sum of x^2
  double error_squares = 0;       // sum of (decoded - x)^2
  double dot = 0;                 // sum of x * decoded

  std::int64_t quant_blocks = 0;      // of 16
  std::int64_t cast_blocks = 0;       // codes of an FP4 source unchanged but for scales' signs
  std::int64_t reencoded_blocks = 0;  // of an FP4 source whose scale has no exact counterpart
  std::int64_t zeroed_blocks = 0;     // some value not zero, all codes zero
  std::int64_t saturated_values = 0;  // |x| > 7 * divisor: 6 would not be the nearest code
  std::int64_t scales_too_large = 0;  // wanted block amax / (6 g) > 464: E4M3's 448 is too small
  std::int64_t scales_too_small = 0;  // wanted it > 0 and <= 2^-10: E4M3 would be 0
  WorstQuantBlock worst;              // the first of equals

  bool operator==(const ErrorTally&) const = default;

  // Adds what `other` counted after this one.
  void merge(const ErrorTally& other);

  bool lossless() const { return exact_values == values; }
  double exact_share() const;     // 1 without values
  double relative_error() const;  // sqrt(error_squares / source_squares); 0 where nothing was lost
  double cosine() const;          // between source and decoded; 1 where both are zero
};

// All counts, sums and the worst block; doubles keep every bit.
nlohmann::ordered_json to_json(const ErrorTally& tally);
// Reads what to_json wrote. Throws Error kBadRequest naming the member that is missing or wrong.
ErrorTally error_tally_from_json(const nlohmann::json& json);

}  // namespace dsv4
