// compressor_cases.h: shapes of the compressor, shared by tests and benches, and a run of sequences
// through it step by step, with states on a device.
#pragma once

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "ops/compressor.h"
#include "testing/each_backend.h"
#include "testing/generators.h"
#include "testing/test_matrix.h"

namespace dsv4::testing {

struct CompressorCase {
  std::string name;
  int compress_ratio = 4;
  bool overlapping = true;
  std::int64_t row_dim = 8;
  double score_deviation = 1;
};

inline std::vector<CompressorCase> compressor_cases() {
  return {{"csa", 4, true, 8, 1},
          {"csa_512", 4, true, 512, 1},
          {"hca", 128, false, 8, 1},
          {"hca_512", 128, false, 512, 1},
          {"hca_peaked", 128, false, 8, 40},
          {"csa_peaked", 4, true, 8, 40},
          {"csa_equal_scores", 4, true, 8, 0},
          {"hca_equal_scores", 128, false, 8, 0},
          {"one_token_a_group", 1, false, 3, 1},
          {"overlapping_pairs", 2, true, 5, 1}};
}

inline std::int64_t compressor_width(const CompressorCase& c) {
  return (c.overlapping ? 2 : 1) * c.row_dim;
}

// Values or scores (without ape) of the token at `pos`: the same in whatever step it comes.
inline std::vector<float> compressor_values(const CompressorCase& c, std::int64_t sequence,
                                            std::int64_t pos) {
  return normal_values(static_cast<std::uint64_t>(sequence << 32 | pos), compressor_width(c));
}
inline std::vector<float> compressor_scores(const CompressorCase& c, std::int64_t sequence,
                                            std::int64_t pos) {
  return normal_values(static_cast<std::uint64_t>(sequence << 32 | pos) + 0x5C0Eu,
                       compressor_width(c), c.score_deviation);
}
inline std::vector<float> compressor_ape(const CompressorCase& c) {
  return normal_values(77, c.compress_ratio * compressor_width(c));
}
inline std::vector<float> compressor_norm_weight(const CompressorCase& c) {
  return uniform_values(78, c.row_dim, 0.5, 1.5);
}
inline constexpr float kCompressorEps = 1e-6f;

// What one sequence does in a step: tokens from `begin` on, the first `accepted` of them kept.
// `inactive` tokens of position -1 stand behind them.
struct CompressorStep {
  std::int64_t sequence = 0;
  std::int64_t begin = 0;
  std::int64_t tokens = 0;
  std::int64_t accepted = -1;  // -1: all
  std::int64_t inactive = 0;
};

// A step's arrays on a device.
class DeviceCompressorStep {
 public:
  DeviceCompressorStep(Backend& backend, const CompressorCase& c,
                       const std::vector<CompressorStep>& steps, std::int64_t num_states,
                       std::int64_t state_stride, float* states)
      : DeviceCompressorStep(backend, c, HostStep(c, steps, num_states), state_stride, states) {}

  CompressParams compress;
  CompressorCommitParams commit;
  DeviceMatrix rows;

 private:
  struct HostStep {
    HostStep(const CompressorCase& c, const std::vector<CompressorStep>& steps,
             std::int64_t num_states) {
      const float poison = __builtin_bit_cast(float, 0xFFFFFFFFu);
      const auto append = [](std::vector<float>& to, const std::vector<float>& row) {
        to.insert(to.end(), row.begin(), row.end());
      };
      for (const CompressorStep& step : steps) {
        for (std::int64_t pos = step.begin; pos < step.begin + step.tokens; ++pos) {
          append(values, compressor_values(c, step.sequence, pos));
          append(scores, compressor_scores(c, step.sequence, pos));
          positions.push_back(static_cast<std::int32_t>(pos));
        }
        const auto padding = static_cast<std::size_t>(step.inactive * compressor_width(c));
        values.resize(values.size() + padding, poison);
        scores.resize(scores.size() + padding, poison);
        positions.resize(positions.size() + static_cast<std::size_t>(step.inactive), -1);
        token_offsets.push_back(static_cast<std::int32_t>(positions.size()));
        // States lie in reverse: a state belongs to its sequence, not to its place in the batch.
        state_idx.push_back(static_cast<std::int32_t>(num_states - 1 - step.sequence));
        num_accepted.push_back(
            static_cast<std::int32_t>(step.accepted < 0 ? step.tokens : step.accepted));
      }
    }
    std::vector<float> values, scores;
    std::vector<std::int32_t> positions, token_offsets = {0}, state_idx, num_accepted;
  };

  DeviceCompressorStep(Backend& backend, const CompressorCase& c, const HostStep& in,
                       std::int64_t state_stride, float* states)
      : rows(backend, HostMatrix(f32_spec().padded(4),
                                 static_cast<std::int64_t>(in.positions.size()), c.row_dim)),
        values_(matrix(backend, c, in.values)),
        scores_(matrix(backend, c, in.scores)),
        ape_(backend, compressor_ape(c)),
        positions_(backend, in.positions),
        token_offsets_(backend, in.token_offsets),
        state_idx_(backend, in.state_idx),
        num_accepted_(backend, in.num_accepted),
        norm_weight_(backend, HostMatrix(f32_spec(), 1, c.row_dim, compressor_norm_weight(c))) {
    CompressorTokens tokens;
    tokens.compress_ratio = c.compress_ratio;
    tokens.overlapping = c.overlapping;
    tokens.row_dim = c.row_dim;
    tokens.values = values_.view();
    tokens.scores = scores_.view();
    tokens.ape = ape_.data();
    tokens.positions = positions_.data();
    tokens.num_sequences = static_cast<int>(in.state_idx.size());
    tokens.token_offsets = token_offsets_.data();
    tokens.state_idx = state_idx_.data();
    tokens.state_stride = state_stride;
    compress.tokens = tokens;
    compress.states = states;
    compress.norm_weight = norm_weight_.view();
    compress.eps = kCompressorEps;
    compress.rows = rows.mutable_view();
    commit.tokens = tokens;
    commit.num_accepted = num_accepted_.data();
    commit.states = states;
  }
  static DeviceMatrix matrix(Backend& backend, const CompressorCase& c,
                             const std::vector<float>& elements) {
    const std::int64_t width = compressor_width(c);
    return {backend,
            HostMatrix(f32_spec().padded(8), static_cast<std::int64_t>(elements.size()) / width,
                       width, elements)};
  }

  DeviceMatrix values_, scores_;
  DeviceArray<float> ape_;
  DeviceArray<std::int32_t> positions_, token_offsets_, state_idx_, num_accepted_;
  DeviceMatrix norm_weight_;
};

// Sequences run through both ops on a backend. States begin as poison.
class CompressorRun {
 public:
  CompressorRun(Backend& backend, const CompressorCase& c, std::int64_t num_sequences)
      : backend_(&backend),
        case_(c),
        num_sequences_(num_sequences),
        state_stride_(compressor_state_floats(c.compress_ratio, c.overlapping, c.row_dim) + 5),
        states_(backend, num_sequences * state_stride_) {}

  // One step; rows that it emits are added to rows(), those of rejected tokens too.
  void step(const std::vector<CompressorStep>& steps) {
    const DeviceCompressorStep device(*backend_, case_, steps, num_sequences_, state_stride_,
                                      states_.data());
    run_op(*backend_, device.compress);
    run_op(*backend_, device.commit);
    const std::vector<float> emitted = device.rows.values();
    std::int64_t token = 0;
    for (const CompressorStep& step : steps) {
      for (std::int64_t pos = step.begin; pos < step.begin + step.tokens; ++pos, ++token) {
        const auto row = emitted.begin() + token * case_.row_dim;
        add_row(step.sequence, pos, std::vector<float>(row, row + case_.row_dim));
      }
      token += step.inactive;
    }
  }
  // [sequence, group] -> row.
  const std::map<std::pair<std::int64_t, std::int64_t>, std::vector<float>>& rows() const {
    return rows_;
  }
  std::vector<float> states() const { return states_.read(); }

 private:
  void add_row(std::int64_t sequence, std::int64_t pos, const std::vector<float>& row) {
    if ((pos + 1) % case_.compress_ratio == 0) {
      rows_[{sequence, pos / case_.compress_ratio}] = row;
      return;
    }
    for (float value : row) {
      EXPECT_EQ(__builtin_bit_cast(std::uint32_t, value), 0xFFFFFFFFu)
          << "a row that closes no group was written, position " << pos;
    }
  }

  Backend* backend_;
  CompressorCase case_;
  std::int64_t num_sequences_;
  std::int64_t state_stride_;
  DeviceArray<float> states_;
  std::map<std::pair<std::int64_t, std::int64_t>, std::vector<float>> rows_;
};

}  // namespace dsv4::testing
