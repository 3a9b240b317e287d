// Sampling: the highest logit by one pass; otherwise a stable radix sort of all candidates, cuts,
// and the draw, in FP64 in the sorted order.
#include "ops/sampling.h"

#include <cmath>
#include <limits>

#include "cpu/cpu_backend.h"
#include "cpu/order.h"
#include "cpu/scratch.h"

namespace dsv4 {
namespace {

struct Candidate {
  std::uint32_t order;  // descending_bits of the logit
  std::int32_t id;
};

// Scratch of one thread.
struct SamplingScratch {
  Candidate* candidates;  // [vocab]
  Candidate* other;       // [vocab], the sort's second buffer
  double* terms;          // [vocab]

  SamplingScratch(cpu::Scratch& scratch, std::int64_t vocab)
      : candidates(scratch.take<Candidate>(vocab)),
        other(scratch.take<Candidate>(vocab)),
        terms(scratch.take<double>(vocab)) {}
};

const float* logits_of(const SamplingParams& p, std::int64_t row) {
  return static_cast<const float*>(p.logits.data) + row * p.logits.row_stride;
}

// The highest logit above -inf, ties to the lower id; -1 if there is none, or a NaN.
std::int32_t highest(const float* logits, std::int64_t vocab) {
  std::int32_t best = -1;
  float largest = -std::numeric_limits<float>::infinity();
  for (std::int64_t id = 0; id < vocab; ++id) {
    if (logits[id] <= largest) continue;  // one comparison finds what is higher and what is NaN
    if (std::isnan(logits[id])) return -1;
    largest = logits[id];
    best = static_cast<std::int32_t>(id);
  }
  return best;
}

// Least significant byte first, so equal logits stay in ascending id. Passes in which all bytes are
// equal are left out.
void sort_candidates(std::int64_t n, SamplingScratch& scratch) {
  for (int shift = 0; shift < 32; shift += 8) {
    const auto digit = [shift](const Candidate& c) { return (c.order >> shift) & 0xFF; };
    std::int64_t offsets[257] = {};
    for (std::int64_t i = 0; i < n; ++i) ++offsets[digit(scratch.candidates[i]) + 1];
    if (offsets[digit(scratch.candidates[0]) + 1] == n) continue;
    for (int i = 1; i < 257; ++i) offsets[i] += offsets[i - 1];
    for (std::int64_t i = 0; i < n; ++i) {
      const Candidate candidate = scratch.candidates[i];
      scratch.other[offsets[digit(candidate)]++] = candidate;
    }
    std::swap(scratch.candidates, scratch.other);
  }
}

// e^((logit - largest) / temperature), which is 1 at the largest even if that is infinite.
double softmax_term(float logit, float largest, double temperature) {
  if (logit == largest) return 1;
  return std::exp((static_cast<double>(logit) - largest) / temperature);
}

// `largest` is above -inf, so there is a candidate.
std::int32_t draw_token(const SamplingRow& row, const float* logits, std::int64_t vocab,
                        float largest, SamplingScratch scratch) {
  std::int64_t count = 0;
  for (std::int64_t id = 0; id < vocab; ++id) {
    if (!(logits[id] > -std::numeric_limits<float>::infinity())) continue;
    scratch.candidates[count++] = {cpu::descending_bits(logits[id]), static_cast<std::int32_t>(id)};
  }
  sort_candidates(count, scratch);
  const Candidate* const sorted = scratch.candidates;
  if (row.top_k > 0) count = std::min<std::int64_t>(count, row.top_k);
  double total = 0;
  for (std::int64_t i = 0; i < count; ++i) {
    scratch.terms[i] = softmax_term(logits[sorted[i].id], largest, row.temperature);
    total += scratch.terms[i];
  }
  // Terms descend, the first is 1: top_p and min_p each keep a prefix of at least one.
  std::int64_t kept = 0;
  double kept_sum = 0;
  while (kept < count && kept_sum < static_cast<double>(row.top_p) * total &&
         scratch.terms[kept] >= static_cast<double>(row.min_p)) {
    kept_sum += scratch.terms[kept++];
  }
  const double target = uniform_draw(row.seed, row.position) * kept_sum;
  double cumulative = 0;
  for (std::int64_t i = 0; i < kept; ++i) {
    cumulative += scratch.terms[i];
    if (cumulative > target) return sorted[i].id;
  }
  return sorted[kept - 1].id;
}

// Summed by ascending id: the contract leaves the order open.
float logprob(const float* logits, std::int64_t vocab, float largest, std::int32_t token) {
  double sum = 0;
  for (std::int64_t id = 0; id < vocab; ++id) {
    if (logits[id] > -std::numeric_limits<float>::infinity()) {
      sum += softmax_term(logits[id], largest, 1);
    }
  }
  const float logit = logits[token];
  const double distance = logit == largest ? 0 : static_cast<double>(logit) - largest;
  return static_cast<float>(distance - std::log(sum));
}

}  // namespace

std::int64_t CpuBackend::workspace_bytes(const SamplingParams& p) const {
  cpu::Scratch scratch(nullptr);
  for (int i = 0; i < pool_.num_threads(); ++i) SamplingScratch(scratch, p.logits.cols);
  return scratch.bytes();
}

void CpuBackend::compute(const SamplingParams& p, const OpContext& context) {
  const std::int64_t vocab = p.logits.cols;
  pool_.parallel_for(p.logits.rows, 1, [&](std::int64_t row, std::int64_t, int thread_idx) {
    const float* const logits = logits_of(p, row);
    const std::int32_t best = highest(logits, vocab);
    std::int32_t token = best;
    if (best >= 0 && p.rows[row].temperature != 0) {
      cpu::Scratch scratch(context.workspace);
      for (int i = 0; i < thread_idx; ++i) SamplingScratch(scratch, vocab);
      token = draw_token(p.rows[row], logits, vocab, logits[best], SamplingScratch(scratch, vocab));
    }
    p.tokens[row] = token;
    if (p.logprobs == nullptr) return;
    p.logprobs[row] = best < 0 ? std::numeric_limits<float>::quiet_NaN()
                               : logprob(logits, vocab, logits[best], token);
  });
}

}  // namespace dsv4
