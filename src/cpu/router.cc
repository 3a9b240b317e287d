// The router: dot products by the backend's tree, affinities in FP64 rounded once, selection by
// insertion.
#include "ops/router.h"

#include <cmath>
#include <limits>

#include "cpu/cpu_backend.h"
#include "cpu/matmul.h"
#include "cpu/order.h"
#include "cpu/products.h"
#include "cpu/row_math.h"

namespace dsv4 {
namespace {

using cpu::padded;

struct RouterScratch {
  std::int64_t bytes;
  std::int64_t wave;  // tokens
  std::int64_t width;
  float* x;             // [wave, width]
  float* affinities;    // [wave, experts]
  float* panels;        // [threads, panel_floats]
  std::uint64_t* keys;  // [threads, experts_per_token]

  RouterScratch(std::byte* workspace, const RouterParams& p, int threads) {
    cpu::Scratch scratch(workspace);
    width = padded(p.weight.cols);
    wave = cpu::wave_tokens(width, p.x.rows);
    x = scratch.take<float>(wave * width);
    affinities = scratch.take<float>(wave * p.weight.rows);
    panels = scratch.take<float>(threads * cpu::panel_floats(p.weight.cols));
    keys = scratch.take<std::uint64_t>(threads * std::int64_t{p.experts_per_token});
    bytes = scratch.bytes();
  }
};

bool is_active(const RouterParams& p, std::int64_t token) {
  return p.token_ids == nullptr || p.token_ids[token] != -1;
}

double softplus(double x) { return std::max(x, 0.0) + std::log1p(std::exp(-std::fabs(x))); }

float affinity_of(ScoringFunction scoring, double x) {
  return static_cast<float>(scoring == ScoringFunction::kSigmoid ? 1 / (1 + std::exp(-x))
                                                                 : std::sqrt(softplus(x)));
}

void softmax(std::int64_t n, float* values) {
  double largest = -std::numeric_limits<double>::infinity();
  for (std::int64_t i = 0; i < n; ++i) largest = std::max(largest, double{values[i]});
  double sum = 0;
  for (std::int64_t i = 0; i < n; ++i) sum += std::exp(values[i] - largest);
  for (std::int64_t i = 0; i < n; ++i) {
    values[i] = static_cast<float>(std::exp(values[i] - largest) / sum);
  }
}

// The count best of the experts, in order, into keys [count].
void select_experts(const float* affinities, const float* bias, std::int64_t num_experts, int count,
                    std::uint64_t* keys) {
  int held = 0;
  for (std::int64_t e = 0; e < num_experts; ++e) {
    const float value = affinities[e] + (bias == nullptr ? 0.0f : bias[e]);
    const std::uint64_t key = cpu::descending_key(value, static_cast<std::uint32_t>(e));
    if (held == count && key > keys[count - 1]) continue;
    int at = held < count ? held++ : count - 1;
    for (; at > 0 && keys[at - 1] > key; --at) keys[at] = keys[at - 1];
    keys[at] = key;
  }
}

void copy_hashed_experts(const RouterParams& p, std::int64_t token, std::int32_t* experts) {
  const std::int32_t token_id = p.token_ids[token];
  DSV4_CHECK(token_id >= 0 && token_id < p.vocab, "token id {} of a hash table of {}", token_id,
             p.vocab);
  const std::int32_t* const hashed = p.hash_table + token_id * std::int64_t{p.experts_per_token};
  for (int i = 0; i < p.experts_per_token; ++i) {
    DSV4_CHECK(hashed[i] >= 0 && hashed[i] < p.weight.rows, "hash table has expert {} of {}",
               hashed[i], p.weight.rows);
    experts[i] = hashed[i];
  }
}

// values [experts]: the token's dot products, which become affinities.
void route_token(const RouterParams& p, std::int64_t token, float* values, std::uint64_t* keys) {
  std::int32_t* const experts = p.expert_idx + token * p.experts_per_token;
  float* const weights = p.expert_weights + token * p.experts_per_token;
  if (p.scoring == ScoringFunction::kSoftmax) {
    softmax(p.weight.rows, values);
  } else if (p.hash_table == nullptr) {
    for (std::int64_t e = 0; e < p.weight.rows; ++e) values[e] = affinity_of(p.scoring, values[e]);
  }
  if (p.hash_table == nullptr) {
    select_experts(values, p.bias, p.weight.rows, p.experts_per_token, keys);
    for (int i = 0; i < p.experts_per_token; ++i) experts[i] = cpu::key_index(keys[i]);
  } else {
    copy_hashed_experts(p, token, experts);
  }
  const bool only_chosen = p.hash_table != nullptr && p.scoring != ScoringFunction::kSoftmax;
  float sum = 0;
  for (int i = 0; i < p.experts_per_token; ++i) {
    const float value = values[experts[i]];
    weights[i] = only_chosen ? affinity_of(p.scoring, value) : value;
    sum += weights[i];
  }
  if (p.scoring == ScoringFunction::kSoftmax) sum = 1;
  for (int i = 0; i < p.experts_per_token; ++i) weights[i] = weights[i] / sum * p.routed_scale;
}

}  // namespace

std::int64_t CpuBackend::workspace_bytes(const RouterParams& p) const {
  return RouterScratch(nullptr, p, pool_.num_threads()).bytes;
}

void CpuBackend::compute(const RouterParams& p, const OpContext& context) {
  const RouterScratch scratch(context.workspace, p, pool_.num_threads());
  const cpu::Source w = cpu::make_source(p.weight, *tables_);
  const cpu::Source x = cpu::make_source(p.x, *tables_);
  const std::int64_t experts = p.weight.rows;
  for (std::int64_t begin = 0; begin < p.x.rows; begin += scratch.wave) {
    const std::int64_t wave = std::min(scratch.wave, p.x.rows - begin);
    pool_.parallel_for(wave, 8, [&](std::int64_t first, std::int64_t end) {
      for (std::int64_t t = first; t < end; ++t) {
        float* const row = scratch.x + t * scratch.width;
        if (is_active(p, begin + t)) {
          dot_.decode_row(x, begin + t, row);
        } else {
          std::fill_n(row, scratch.width, 0.0f);
        }
      }
    });
    cpu::multiply(pool_, dot_,
                  {&w, scratch.x, scratch.width, wave, scratch.affinities, scratch.panels});
    pool_.parallel_for(wave, cpu::row_grain(experts, 512),
                       [&](std::int64_t first, std::int64_t end, int thread_idx) {
                         for (std::int64_t t = first; t < end; ++t) {
                           if (is_active(p, begin + t)) {
                             route_token(
                                 p, begin + t, scratch.affinities + t * experts,
                                 scratch.keys + thread_idx * std::int64_t{p.experts_per_token});
                           } else {
                             std::fill_n(p.expert_idx + (begin + t) * p.experts_per_token,
                                         p.experts_per_token, -1);
                           }
                         }
                       });
  }
}

}  // namespace dsv4
