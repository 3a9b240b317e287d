// model_runner.h: a model on NaN-poisoned memory, its logits for steps of any cut, and comparisons
// of them bit for bit. For tests of what must not decide a token's logits.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <filesystem>
#include <initializer_list>
#include <memory>
#include <ostream>
#include <random>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "checkpoint/bind.h"
#include "dsv4/types.h"
#include "kv/handle.h"
#include "model/model.h"
#include "testing/golden_copy.h"
#include "testing/poisoned_backend.h"

namespace dsv4 {

using Logits = std::vector<float>;

struct Mode {
  const char* name;
  const char* model;
  Activations activations;
  bool simulate_rows;
  KvFormat kv;
  const char* device = "reference";
};
inline void PrintTo(const Mode& mode, std::ostream* os) { *os << mode.name; }
inline std::string mode_name(const testing::TestParamInfo<Mode>& info) { return info.param.name; }

inline const Mode kBf16{"bf16", "flash-bf16", Activations::kA16, true, KvFormat::kFp8};

inline ModelOptions options_of(const Mode& mode, std::int64_t max_step_tokens,
                               std::int64_t page_rows) {
  return {.activations = mode.activations,
          .simulate_rows = mode.simulate_rows,
          .kv = mode.kv,
          .max_step_tokens = max_step_tokens,
          .page_rows = page_rows};
}

// Layers 1 and 2 of a golden model: window, CSA with indexer, HCA. Half the time of all four.
inline std::shared_ptr<const ModelWeights> two_layers(std::string_view model) {
  const std::filesystem::path dir = golden_dir(model);
  ModelWeights weights =
      bind_weights(load_model_config(dir), std::make_shared<TensorStore>(TensorStore::open(dir)),
                   {.with_draft = false});
  weights.layers.erase(weights.layers.begin() + 3, weights.layers.end());
  weights.layers.erase(weights.layers.begin());
  weights.config.num_layers = 2;
  weights.config.compress_ratios = {4, 128};
  return std::make_shared<const ModelWeights>(std::move(weights));
}

inline std::vector<TokenId> random_tokens(std::int64_t count, unsigned seed,
                                          std::int64_t vocab_size) {
  std::mt19937 random(seed);
  std::vector<TokenId> tokens;
  for (std::int64_t i = 0; i < count; ++i) {
    tokens.push_back(static_cast<TokenId>(random() % static_cast<std::uint32_t>(vocab_size)));
  }
  return tokens;
}

// Tokens of one session that one step computes.
struct Part {
  SequenceCache* sequence = nullptr;
  std::span<const TokenId> tokens;
};

class Runner {
 public:
  Runner(std::shared_ptr<const ModelWeights> weights, const ModelOptions& options,
         std::int64_t capacity_tokens = 1024, int max_sessions = 4,
         std::string_view device = "reference")
      : backend_(poisoned_backend(device)),
        model_(std::move(weights), *backend_, options),
        cache_(model_.make_cache(capacity_tokens, max_sessions)) {}

  KvCache& cache() { return *cache_; }
  std::int64_t vocab_size() const { return model_.config().vocab_size; }

  // Logits of every token of the step, in the order of `parts`.
  std::vector<Logits> step(const std::vector<Part>& parts) {
    std::vector<TokenId> tokens;
    std::vector<StepSequence> sequences;
    for (const Part& part : parts) {
      tokens.insert(tokens.end(), part.tokens.begin(), part.tokens.end());
      sequences.push_back(
          {part.sequence, part.sequence->length(), static_cast<std::int64_t>(part.tokens.size())});
    }
    std::vector<std::int32_t> rows;
    for (std::size_t i = 0; i < tokens.size(); ++i) rows.push_back(static_cast<std::int32_t>(i));
    model_.forward(*cache_, {tokens, sequences, rows});
    return logits();
  }
  // Logits of the last token alone.
  Logits prefill(SequenceCache& sequence, std::span<const TokenId> tokens) {
    const auto count = static_cast<std::int64_t>(tokens.size());
    const StepSequence sequences[] = {{&sequence, sequence.length(), count}};
    const std::int32_t rows[] = {static_cast<std::int32_t>(count - 1)};
    model_.forward(*cache_, {tokens, sequences, rows});
    return logits().at(0);
  }
  // The tokens in steps of the given sizes; what the sizes leave is one more step.
  std::vector<Logits> in_chunks(SequenceCache& sequence, std::span<const TokenId> tokens,
                                std::span<const std::size_t> sizes) {
    std::vector<Logits> all;
    std::size_t begin = 0;
    const auto take = [&](std::size_t count) {
      for (Logits& row : step({{&sequence, tokens.subspan(begin, count)}})) {
        all.push_back(std::move(row));
      }
      begin += count;
    };
    for (const std::size_t size : sizes) take(size);
    if (begin < tokens.size()) take(tokens.size() - begin);
    return all;
  }
  std::vector<Logits> in_chunks(std::span<const TokenId> tokens,
                                std::span<const std::size_t> sizes) {
    SequenceCache sequence(*cache_);
    return in_chunks(sequence, tokens, sizes);
  }
  // One token a step.
  std::vector<Logits> decode(std::span<const TokenId> tokens) {
    return in_chunks(tokens, std::vector<std::size_t>(tokens.size(), 1));
  }

  // NaN into all rows and states; no session may live.
  void poison_cache() {
    for (std::size_t i = 0; i < cache_->schema.layers.size(); ++i) {
      const int layer = static_cast<int>(i);
      const LayerCacheSchema& schema = cache_->schema.layers[i];
      const std::int64_t sessions = cache_->state.states().capacity();
      poison_rows(cache_->state.raw_rows(layer));
      poison_rows(cache_->paged.comp_rows(layer));
      poison_rows(cache_->paged.index_rows(layer));
      poison_floats(cache_->state.comp_states(layer), sessions * schema.comp_state_floats);
      poison_floats(cache_->state.index_states(layer), sessions * schema.index_state_floats);
    }
  }

 private:
  std::vector<Logits> logits() {
    const MatrixView m = model_.logits();
    std::vector<Logits> rows;
    for (std::int64_t row = 0; row < m.rows; ++row) {
      Logits& values = rows.emplace_back(static_cast<std::size_t>(m.cols));
      backend_->copy_to_host(values.data(), static_cast<const float*>(m.data) + row * m.row_stride,
                             m.cols * static_cast<std::int64_t>(sizeof(float)), {});
    }
    return rows;
  }
  void poison_rows(const MutablePagedRowsView& rows) {
    if (rows.data == nullptr) return;
    backend_->fill(rows.data, 0xFF, rows.num_pages * rows.page_stride_bytes, {});
  }
  void poison_floats(float* values, std::int64_t count) {
    if (values == nullptr) return;
    backend_->fill(values, 0xFF, count * static_cast<std::int64_t>(sizeof(float)), {});
  }

  std::unique_ptr<Backend> backend_;
  Model model_;
  std::unique_ptr<KvCache> cache_;
};

// Bits, not values: -0 is not 0. A NaN is a failure whatever it is compared with.
inline bool same_bits(const Logits& a, const Logits& b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(), [](float x, float y) {
    return std::bit_cast<std::uint32_t>(x) == std::bit_cast<std::uint32_t>(y) && x == x;
  });
}

// Names the first position that differs.
inline void expect_same(std::span<const Logits> got, std::span<const Logits> want) {
  ASSERT_EQ(got.size(), want.size());
  for (std::size_t i = 0; i < got.size(); ++i) {
    ASSERT_TRUE(same_bits(got[i], want[i])) << "position " << i << " of " << got.size();
  }
}

// Cuts `count` into steps of random sizes, small and large.
inline std::vector<std::size_t> random_split(std::size_t count, unsigned seed) {
  std::mt19937 random(seed);
  std::vector<std::size_t> sizes;
  for (std::size_t left = count; left > 0; left -= sizes.back()) {
    const std::size_t largest = random() % 3 == 0 ? 150 : 9;
    sizes.push_back(std::min<std::size_t>(left, 1 + random() % largest));
  }
  return sizes;
}

// Steps that end exactly at the given lengths.
inline std::vector<std::size_t> split_at(std::initializer_list<std::size_t> lengths) {
  std::vector<std::size_t> sizes;
  std::size_t begin = 0;
  for (const std::size_t length : lengths) {
    sizes.push_back(length - begin);
    begin = length;
  }
  return sizes;
}

}  // namespace dsv4
