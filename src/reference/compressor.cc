// The compressor, plainly: the HCA fold in FP32 token by token, overlapping groups by gathering
// their 2 ratio entries. Neither depends on where a step began.
#include "ops/compressor.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "reference/reference_backend.h"
#include "reference/rows.h"

namespace dsv4 {
namespace {

// The active tokens of one sequence in this step.
struct SequenceTokens {
  std::int64_t begin = 0;  // token index
  std::int64_t count = 0;
  std::int64_t first_position = 0;
};

SequenceTokens sequence_tokens(const CompressorTokens& tokens, std::int64_t sequence) {
  SequenceTokens s;
  s.begin = tokens.token_offsets[sequence];
  const std::int64_t end = tokens.token_offsets[sequence + 1];
  while (s.begin + s.count < end && tokens.positions[s.begin + s.count] >= 0) ++s.count;
  if (s.count > 0) s.first_position = tokens.positions[s.begin];
  return s;
}

const float* token_values(const CompressorTokens& tokens, std::int64_t token) {
  return static_cast<const float*>(tokens.values.data) + token * tokens.values.row_stride;
}

float token_score(const CompressorTokens& tokens, std::int64_t token, std::int64_t channel) {
  const std::int64_t ape_row = tokens.positions[token] % tokens.compress_ratio;
  const auto* const scores = static_cast<const float*>(tokens.scores.data);
  return scores[token * tokens.scores.row_stride + channel] +
         tokens.ape[ape_row * tokens.scores.cols + channel];
}

// The running softmax of an open HCA group: max, sum and acc of [row_dim] each, side by side.
void fold_token(const CompressorTokens& tokens, std::int64_t token, float* state) {
  const std::int64_t d = tokens.row_dim;
  float* const max = state;
  float* const sum = state + d;
  float* const acc = state + 2 * d;
  const float* const v = token_values(tokens, token);
  const bool first = tokens.positions[token] % tokens.compress_ratio == 0;
  for (std::int64_t i = 0; i < d; ++i) {
    const float s = token_score(tokens, token, i);
    if (first) {
      max[i] = s;
      sum[i] = 1.0f;
      acc[i] = v[i];
      continue;
    }
    const float new_max = std::max(max[i], s);
    const float keep = std::exp(max[i] - new_max);
    const float weight = std::exp(s - new_max);
    sum[i] = sum[i] * keep + weight;
    acc[i] = acc[i] * keep + weight * v[i];
    max[i] = new_max;
  }
}

// RMSNorm of a pooled row into rows[token].
void store_normalized(const CompressParams& p, std::int64_t token, std::vector<float> row) {
  const std::int64_t d = p.tokens.row_dim;
  const std::vector<float> weight = decoded_row(p.norm_weight, 0);
  const double mean_square = dot(row.data(), row.data(), d) / static_cast<double>(d);
  const double factor = 1 / std::sqrt(mean_square + p.eps);
  for (std::int64_t i = 0; i < d; ++i) row[i] = static_cast<float>(row[i] * factor * weight[i]);
  store_matrix_row(p.rows, token, row.data());
}

bool closes_group(const CompressorTokens& tokens, std::int64_t token) {
  return (std::int64_t{tokens.positions[token]} + 1) % tokens.compress_ratio == 0;
}

void compress_running(const CompressParams& p, const SequenceTokens& s, const float* state) {
  const std::int64_t d = p.tokens.row_dim;
  std::vector<float> open(static_cast<std::size_t>(3 * d));
  if (s.first_position % p.tokens.compress_ratio != 0) std::copy_n(state, 3 * d, open.begin());
  for (std::int64_t t = s.begin; t < s.begin + s.count; ++t) {
    fold_token(p.tokens, t, open.data());
    if (!closes_group(p.tokens, t)) continue;
    std::vector<float> row(static_cast<std::size_t>(d));
    for (std::int64_t i = 0; i < d; ++i) row[i] = open[2 * d + i] / open[d + i];
    store_normalized(p, t, std::move(row));
  }
}

// Where a token of the ring of an overlapping state keeps its values; its scores follow them.
std::int64_t ring_offset(const CompressorTokens& tokens, std::int64_t pos) {
  return pos % (2 * tokens.compress_ratio) * 2 * tokens.values.cols;
}

// Value and score of one channel of the token at `pos`, from this step or from the ring.
struct Entry {
  double value = 0;
  double score = 0;
};
Entry overlapping_entry(const CompressorTokens& tokens, const SequenceTokens& s, const float* state,
                        std::int64_t pos, std::int64_t channel) {
  if (pos >= s.first_position) {
    const std::int64_t token = s.begin + pos - s.first_position;
    return {token_values(tokens, token)[channel], token_score(tokens, token, channel)};
  }
  const float* const entry = state + ring_offset(tokens, pos);
  return {entry[channel], entry[tokens.values.cols + channel]};
}

// Channel i of the row of `group`: softmax over the tokens of the group before and its own.
float pool_overlapping(const CompressorTokens& tokens, const SequenceTokens& s, const float* state,
                       std::int64_t group, std::int64_t i) {
  const std::int64_t ratio = tokens.compress_ratio;
  std::vector<Entry> entries;
  for (std::int64_t pos = std::max<std::int64_t>(0, (group - 1) * ratio); pos < (group + 1) * ratio;
       ++pos) {
    const std::int64_t channel = pos < group * ratio ? i : tokens.row_dim + i;
    entries.push_back(overlapping_entry(tokens, s, state, pos, channel));
  }
  double max = entries[0].score;
  for (const Entry& entry : entries) max = std::max(max, entry.score);
  double sum = 0;
  double acc = 0;
  for (const Entry& entry : entries) {
    const double weight = std::exp(entry.score - max);
    sum += weight;
    acc += weight * entry.value;
  }
  return static_cast<float>(acc / sum);
}

void compress_overlapping(const CompressParams& p, const SequenceTokens& s, const float* state) {
  for (std::int64_t t = s.begin; t < s.begin + s.count; ++t) {
    if (!closes_group(p.tokens, t)) continue;
    const std::int64_t group = p.tokens.positions[t] / p.tokens.compress_ratio;
    std::vector<float> row(static_cast<std::size_t>(p.tokens.row_dim));
    for (std::int64_t i = 0; i < p.tokens.row_dim; ++i) {
      row[i] = pool_overlapping(p.tokens, s, state, group, i);
    }
    store_normalized(p, t, std::move(row));
  }
}

void commit_overlapping(const CompressorTokens& tokens, std::int64_t token, float* state) {
  const std::int64_t width = tokens.values.cols;
  float* const entry = state + ring_offset(tokens, tokens.positions[token]);
  std::copy_n(token_values(tokens, token), width, entry);
  for (std::int64_t i = 0; i < width; ++i) entry[width + i] = token_score(tokens, token, i);
}

}  // namespace

void ReferenceBackend::compute(const CompressParams& p, const OpContext&) {
  for (std::int64_t i = 0; i < p.tokens.num_sequences; ++i) {
    const SequenceTokens s = sequence_tokens(p.tokens, i);
    if (s.count == 0) continue;
    const float* const state = p.states + p.tokens.state_idx[i] * p.tokens.state_stride;
    if (p.tokens.overlapping) {
      compress_overlapping(p, s, state);
    } else {
      compress_running(p, s, state);
    }
  }
}

void ReferenceBackend::compute(const CompressorCommitParams& p, const OpContext&) {
  for (std::int64_t i = 0; i < p.tokens.num_sequences; ++i) {
    const SequenceTokens s = sequence_tokens(p.tokens, i);
    const std::int64_t accepted =
        p.num_accepted == nullptr ? s.count : std::min<std::int64_t>(s.count, p.num_accepted[i]);
    if (accepted <= 0) continue;
    float* const state = p.states + p.tokens.state_idx[i] * p.tokens.state_stride;
    for (std::int64_t t = s.begin; t < s.begin + accepted; ++t) {
      if (p.tokens.overlapping) {
        commit_overlapping(p.tokens, t, state);
      } else {
        fold_token(p.tokens, t, state);
      }
    }
  }
}

}  // namespace dsv4
