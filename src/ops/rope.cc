// Frequency tables, refusals and cost of rotary position embedding.
#include "ops/rope.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "base/error.h"
#include "ops/op_checks.h"

namespace dsv4 {
namespace {

// c(b): the index, as a real number, of the frequency that turns b times over the original length.
double correction_index(const RopeScaling& scaling, int rope_dim, double turns) {
  const double wavelengths =
      static_cast<double>(scaling.original_length) / (2 * std::numbers::pi * turns);
  return rope_dim * std::log(wavelengths) / (2 * std::log(scaling.base));
}

void check_scaling(const RopeScaling& scaling, int rope_dim) {
  require(rope_dim >= 0 && rope_dim % 2 == 0, ErrorCode::kBadRequest,
          "rope_dim is {}, must be even and at least 0", rope_dim);
  require(std::isfinite(scaling.base) && scaling.base > 1, ErrorCode::kBadRequest,
          "RopeScaling.base is {}, must be finite and above 1", scaling.base);
  require(std::isfinite(scaling.factor) && scaling.factor > 0, ErrorCode::kBadRequest,
          "RopeScaling.factor is {}, must be finite and above 0", scaling.factor);
  if (scaling.factor == 1) return;
  require(scaling.original_length > 0, ErrorCode::kBadRequest,
          "RopeScaling.original_length is {}, must be above 0 with a factor",
          scaling.original_length);
  require(std::isfinite(scaling.beta_fast) && scaling.beta_fast > 0, ErrorCode::kBadRequest,
          "RopeScaling.beta_fast is {}, must be finite and above 0", scaling.beta_fast);
  require(std::isfinite(scaling.beta_slow) && scaling.beta_slow > 0, ErrorCode::kBadRequest,
          "RopeScaling.beta_slow is {}, must be finite and above 0", scaling.beta_slow);
}

}  // namespace

std::vector<float> rope_frequencies(const RopeScaling& scaling, int rope_dim) {
  check_scaling(scaling, rope_dim);
  double low = 0;
  double high = 0;
  if (scaling.factor != 1) {
    low = std::max(std::floor(correction_index(scaling, rope_dim, scaling.beta_fast)), 0.0);
    high =
        std::min(std::ceil(correction_index(scaling, rope_dim, scaling.beta_slow)), rope_dim - 1.0);
    if (low == high) high += 0.001;
  }
  // FP32 step by step, as the model was trained: an ulp of a frequency near 1 is 0.06 rad at a
  // million tokens, as much as the FP64 product that the contract rules out.
  std::vector<float> frequencies;
  for (int i = 0; i < rope_dim / 2; ++i) {
    const auto exponent = static_cast<float>(2 * i) / static_cast<float>(rope_dim);
    const float frequency = 1.0f / static_cast<float>(std::pow(scaling.base, exponent));
    if (scaling.factor == 1) {
      frequencies.push_back(frequency);
      continue;
    }
    const float ramp = std::clamp(static_cast<float>((i - low) / (high - low)), 0.0f, 1.0f);
    const float kept = 1.0f - ramp;
    frequencies.push_back(frequency / static_cast<float>(scaling.factor) * (1.0f - kept) +
                          frequency * kept);
  }
  return frequencies;
}

void check(const RopeParams& p) {
  check_matrix("RopeParams.x", p.x, kPlainFormats);
  check_at_least("RopeParams.num_heads", p.num_heads, 1);
  require(p.x.cols % p.num_heads == 0, ErrorCode::kBadRequest,
          "RopeParams.x.cols is {}, must be a multiple of num_heads = {}", p.x.cols, p.num_heads);
  require(p.rope_dim >= 0 && p.rope_dim % 2 == 0, ErrorCode::kBadRequest,
          "RopeParams.rope_dim is {}, must be even and at least 0", p.rope_dim);
  check_at_most("RopeParams.rope_dim", p.rope_dim, "x.cols / num_heads", p.x.cols / p.num_heads);
  if (p.x.rows == 0 || p.rope_dim == 0) return;
  check_pointer("RopeParams.frequencies", p.frequencies, "[rope_dim / 2]");
  check_pointer("RopeParams.positions", p.positions, "[x.rows]");
}

Cost cost(const RopeParams& p) {
  // Six operations a pair; sines and cosines, one pair a token and frequency, do not count.
  const std::int64_t values = p.x.rows * p.num_heads * p.rope_dim;
  const std::int64_t bytes = data_bytes(p.x.format, values);
  return {3.0 * static_cast<double>(values), bytes + 4 * p.x.rows + 2 * p.rope_dim, bytes};
}

}  // namespace dsv4
