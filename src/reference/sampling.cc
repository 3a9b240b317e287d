// Sampling: sort all candidates, cut, draw.
#include <cmath>
#include <limits>

#include "reference/reference_backend.h"
#include "reference/rows.h"

namespace dsv4 {
namespace {

// Token ids with a logit above -inf, by descending logit, ties to the lower id; none if any logit
// is NaN.
std::vector<std::int32_t> ordered_candidates(const std::vector<float>& logits) {
  std::vector<std::int32_t> ids;
  for (std::size_t id = 0; id < logits.size(); ++id) {
    if (std::isnan(logits[id])) return {};
    if (logits[id] > -std::numeric_limits<float>::infinity()) {
      ids.push_back(static_cast<std::int32_t>(id));
    }
  }
  std::sort(ids.begin(), ids.end(), [&](std::int32_t a, std::int32_t b) {
    const float logit_a = logits[static_cast<std::size_t>(a)];
    const float logit_b = logits[static_cast<std::size_t>(b)];
    return logit_a != logit_b ? logit_a > logit_b : a < b;
  });
  return ids;
}

// e^((logit - largest) / temperature), which is 1 at the largest even if that is infinite.
double softmax_term(float logit, float largest, double temperature) {
  if (logit == largest) return 1;
  return std::exp((static_cast<double>(logit) - largest) / temperature);
}

std::int32_t draw_token(const SamplingRow& row, const std::vector<float>& logits,
                        std::vector<std::int32_t> ids) {
  if (row.temperature == 0) return ids[0];
  if (row.top_k > 0) ids.resize(std::min(ids.size(), static_cast<std::size_t>(row.top_k)));
  const float largest = logits[static_cast<std::size_t>(ids[0])];
  std::vector<double> terms;
  double total = 0;
  for (std::int32_t id : ids) {
    terms.push_back(softmax_term(logits[static_cast<std::size_t>(id)], largest, row.temperature));
    total += terms.back();
  }
  // Terms descend, the first is 1: top_p and min_p each keep a prefix of at least one.
  std::size_t kept = 0;
  double kept_sum = 0;
  while (kept < terms.size() && kept_sum < static_cast<double>(row.top_p) * total &&
         terms[kept] >= static_cast<double>(row.min_p)) {
    kept_sum += terms[kept++];
  }
  const double target = uniform_draw(row.seed, row.position) * kept_sum;
  double cumulative = 0;
  for (std::size_t i = 0; i < kept; ++i) {
    cumulative += terms[i];
    if (cumulative > target) return ids[i];
  }
  return ids[kept - 1];
}

float logprob(const std::vector<float>& logits, const std::vector<std::int32_t>& ids,
              std::int32_t token) {
  const float largest = logits[static_cast<std::size_t>(ids[0])];
  double sum = 0;
  for (std::int32_t id : ids) sum += softmax_term(logits[static_cast<std::size_t>(id)], largest, 1);
  const float logit = logits[static_cast<std::size_t>(token)];
  const double distance = logit == largest ? 0 : static_cast<double>(logit) - largest;
  return static_cast<float>(distance - std::log(sum));
}

}  // namespace

void ReferenceBackend::compute(const SamplingParams& p, const OpContext&) {
  for (std::int64_t row = 0; row < p.logits.rows; ++row) {
    const std::vector<float> logits = decoded_row(p.logits, row);
    const std::vector<std::int32_t> ids = ordered_candidates(logits);
    const std::int32_t token = ids.empty() ? -1 : draw_token(p.rows[row], logits, ids);
    p.tokens[row] = token;
    if (p.logprobs == nullptr) continue;
    p.logprobs[row] =
        ids.empty() ? std::numeric_limits<float>::quiet_NaN() : logprob(logits, ids, token);
  }
}

}  // namespace dsv4
