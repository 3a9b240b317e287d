// router_cases.h: shapes on which the router is tested and measured.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "ops/router.h"
#include "testing/each_backend.h"
#include "testing/generators.h"
#include "testing/test_matrix.h"

namespace dsv4::testing {

struct RouterCase {
  std::string name;
  std::int64_t tokens = 0;
  std::int64_t hidden = 0;
  std::int64_t experts = 0;
  int experts_per_token = 0;
  MatrixSpec x = f32_spec();
  MatrixSpec weight = f32_spec();
  ScoringFunction scoring = ScoringFunction::kSqrtSoftplus;
  bool has_bias = true;
  std::int64_t vocab = 0;  // above 0: routed by hash
  float routed_scale = 1.5f;
};

// All scorings, with and without bias, by hash; the models' expert counts; token counts around 256,
// where another engine's kernel failed; as many choices as experts.
inline std::vector<RouterCase> router_cases() {
  std::vector<RouterCase> cases;
  for (const ScoringFunction scoring :
       {ScoringFunction::kSqrtSoftplus, ScoringFunction::kSigmoid, ScoringFunction::kSoftmax}) {
    const std::string name(to_string(scoring));
    cases.push_back({name, 5, 512, 256, 6, bf16_spec(), bf16_spec(), scoring});
    cases.push_back({name + "_no_bias", 5, 100, 33, 4, f32_spec().padded(3), f32_spec().padded(1),
                     scoring, false});
    cases.push_back({name + "_hash", 5, 64, 16, 3, f32_spec(), bf16_spec(), scoring, true, 50});
  }
  cases.push_back({"pro", 3, 1600, 384, 6, bf16_spec(), bf16_spec()});
  for (const std::int64_t tokens : {1, 255, 256, 257, 1024}) {
    cases.push_back({"tokens_" + std::to_string(tokens), tokens, 16, 32, 6});
  }
  cases.push_back({"one_expert", 2, 16, 1, 1});
  cases.push_back({"all_experts", 2, 16, 8, 8});
  cases.push_back({"one_choice", 4, 16, 9, 1});
  return cases;
}

struct RouterInputs {
  HostMatrix x;
  HostMatrix weight;
  std::vector<float> bias;               // empty: none
  std::vector<std::int32_t> hash_table;  // empty: by score
  std::vector<std::int32_t> token_ids;   // empty: none
};
inline RouterInputs make_inputs(const RouterCase& c) {
  RouterInputs in{
      HostMatrix(c.x, c.tokens, c.hidden, normal_values(51, c.tokens * c.hidden)),
      HostMatrix(c.weight, c.experts, c.hidden, normal_values(52, c.experts * c.hidden, 0.1)),
      {},
      {},
      {}};
  if (c.has_bias) in.bias = normal_values(53, c.experts, 0.3);
  Random random(54);
  for (std::int64_t id = 0; id < c.vocab; ++id) {
    // Different experts of one token: a random start, then a step that is odd and so never
    // returns within a power of two.
    const std::int64_t start = random.index(c.experts);
    for (int i = 0; i < c.experts_per_token; ++i) {
      in.hash_table.push_back(static_cast<std::int32_t>((start + 5 * i) % c.experts));
    }
  }
  for (std::int64_t t = 0; c.vocab > 0 && t < c.tokens; ++t) {
    in.token_ids.push_back(static_cast<std::int32_t>(random.index(c.vocab)));
  }
  return in;
}

struct RouterOutputs {
  std::vector<std::int32_t> expert_idx;
  std::vector<float> expert_weights;
};
inline RouterOutputs run_router(Backend& backend, const RouterCase& c, const RouterInputs& in) {
  const DeviceMatrix x(backend, in.x);
  const DeviceMatrix weight(backend, in.weight);
  const DeviceArray<float> bias(backend, in.bias);
  const DeviceArray<std::int32_t> hash_table(backend, in.hash_table);
  const DeviceArray<std::int32_t> token_ids(backend, in.token_ids);
  const std::int64_t choices = in.x.rows * c.experts_per_token;
  const DeviceArray<std::int32_t> expert_idx(backend, choices);
  const DeviceArray<float> expert_weights(backend, choices);
  RouterParams params;
  params.x = x.view();
  params.weight = weight.view();
  if (bias.size() > 0) params.bias = bias.data();
  if (hash_table.size() > 0) params.hash_table = hash_table.data();
  if (token_ids.size() > 0) params.token_ids = token_ids.data();
  params.vocab = c.vocab;
  params.scoring = c.scoring;
  params.routed_scale = c.routed_scale;
  params.experts_per_token = c.experts_per_token;
  params.expert_idx = expert_idx.data();
  params.expert_weights = expert_weights.data();
  run_op(backend, params);
  return {expert_idx.read(), expert_weights.read()};
}

}  // namespace dsv4::testing
