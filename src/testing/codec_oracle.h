// codec_oracle.h: rounding by search over the decoded values, in double, and the FP32 patterns on
// which a codec can go wrong. Independent of the bit arithmetic in numerics/.
#pragma once

#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

namespace dsv4 {

// The code of the value nearest to |x| among `magnitudes`, ascending and indexed by code, a tie
// going to the even code. Beyond the largest the last code. Not for NaN.
inline int nearest_code(double x, const std::vector<float>& magnitudes) {
  // Far above the largest value the distances to all of them would round to the same double.
  const double magnitude = std::fmin(std::fabs(x), magnitudes.back());
  int best = 0;
  double best_distance = std::numeric_limits<double>::infinity();
  for (int code = 0; code < static_cast<int>(magnitudes.size()); ++code) {
    const double distance = std::fabs(magnitude - double{magnitudes[code]});
    if (distance < best_distance || (distance == best_distance && code % 2 == 0)) {
      best = code;
      best_distance = distance;
    }
  }
  return best;
}

// Every sign, exponent and upper seven mantissa bits, with the lower half at both ends, just past
// them, on the half and beside it: every tie of a format of up to 7 mantissa bits and the patterns
// one ulp either side, all infinities and many NaN.
inline std::vector<std::uint32_t> hard_f32_patterns() {
  std::vector<std::uint32_t> patterns;
  patterns.reserve(6 * 65536);
  for (std::uint32_t upper = 0; upper < 65536; ++upper) {
    for (const std::uint32_t lower : {0u, 1u, 0x7FFFu, 0x8000u, 0x8001u, 0xFFFFu}) {
      patterns.push_back(upper << 16 | lower);
    }
  }
  return patterns;
}

}  // namespace dsv4
