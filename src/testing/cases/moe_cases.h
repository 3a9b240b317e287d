// moe_cases.h: shapes of the experts, shared by tests and benches, their weights, and the ops of a
// layer run one after the other on a device.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "ops/moe.h"
#include "testing/each_backend.h"
#include "testing/generators.h"
#include "testing/test_matrix.h"

namespace dsv4::testing {

// How tokens choose experts.
enum class Routing {
  kRandom,
  kAllToOne,
  kFirstEmpty,
  kMiddleEmpty,
  kLastEmpty,
  kNone,
  kSomeAbsent
};

struct MoeCase {
  std::string name;
  std::int64_t tokens = 5;
  std::int64_t hidden = 96;
  std::int64_t inter = 64;
  int num_experts = 5;
  int experts_per_token = 3;
  Routing routing = Routing::kRandom;
  float swiglu_limit = 0.5f;
  MatrixSpec x_spec = f32_spec();
  MatrixSpec weight_spec = f32_spec();
  MatrixSpec out_spec = f32_spec();
};

inline std::vector<MoeCase> moe_cases() {
  std::vector<MoeCase> cases;
  const auto add = [&](const std::string& name, auto change) {
    MoeCase c;
    c.name = name;
    change(c);
    cases.push_back(c);
  };
  const std::pair<const char*, Routing> routings[] = {{"random", Routing::kRandom},
                                                      {"all_to_one", Routing::kAllToOne},
                                                      {"first_empty", Routing::kFirstEmpty},
                                                      {"middle_empty", Routing::kMiddleEmpty},
                                                      {"last_empty", Routing::kLastEmpty},
                                                      {"all_empty", Routing::kNone},
                                                      {"some_elsewhere", Routing::kSomeAbsent}};
  for (const auto& routing : routings) {
    add(routing.first, [&](auto& c) { c.routing = routing.second; });
  }
  for (const std::int64_t tokens : {0, 1, 2, 63, 64, 65}) {
    add("tokens_" + std::to_string(tokens), [&](auto& c) { c.tokens = tokens; });
  }
  // K past and short of tiles of 64 and 128; MXFP4 takes multiples of 32, NVFP4 of 16.
  for (const MatrixSpec& spec : weight_specs()) {
    for (const MatrixSpec& x_spec : activation_specs()) {
      // NVFP4 is the only activation format of whole quant blocks.
      add(spec.name + "_by_" + x_spec.name, [&](auto& c) {
        c.weight_spec = spec.padded(32);
        c.x_spec = x_spec.padded(32);
        c.hidden = spec.format == Format::kMxfp4 ? 160 : 176;
        c.inter = 96;
      });
    }
  }
  add("bf16_out", [](auto& c) {
    c.x_spec = bf16_spec();
    c.out_spec = bf16_spec().padded(2);
  });
  add("one_expert", [](auto& c) {
    c.num_experts = 1;
    c.experts_per_token = 1;
  });
  add("no_clamp", [](auto& c) { c.swiglu_limit = 0; });
  return cases;
}

// The choices [tokens, experts_per_token]; an expert is chosen at most once a token.
inline std::vector<std::int32_t> moe_choices(const MoeCase& c) {
  std::vector<std::int32_t> choices;
  Random random(17);
  for (std::int64_t t = 0; t < c.tokens; ++t) {
    std::vector<std::int32_t> left;
    for (std::int32_t e = 0; e < c.num_experts; ++e) {
      const bool empty = (c.routing == Routing::kFirstEmpty && e == 0) ||
                         (c.routing == Routing::kMiddleEmpty && e == c.num_experts / 2) ||
                         (c.routing == Routing::kLastEmpty && e == c.num_experts - 1) ||
                         c.routing == Routing::kNone || (c.routing == Routing::kAllToOne && e != 2);
      if (!empty) left.push_back(e);
    }
    for (int i = 0; i < c.experts_per_token; ++i) {
      const bool absent =
          left.empty() || (c.routing == Routing::kSomeAbsent && random.index(2) == 0);
      if (absent) {
        choices.push_back(-1);
        continue;
      }
      const std::int64_t pick = random.index(static_cast<std::int64_t>(left.size()));
      choices.push_back(left[pick]);
      left.erase(left.begin() + pick);
    }
  }
  return choices;
}

struct MoeInputs {
  explicit MoeInputs(const MoeCase& c)
      : x(c.x_spec, c.tokens, c.hidden, normal_values(1, c.tokens * c.hidden)),
        choices(moe_choices(c)),
        choice_weights(uniform_values(2, c.tokens * c.experts_per_token, 0.1, 1)),
        shared(f32_spec(), c.tokens, c.hidden, normal_values(3, c.tokens * c.hidden)) {
    for (int e = 0; e < c.num_experts; ++e) {
      gate.push_back(weight(c, 100 + e, c.inter, c.hidden));
      up.push_back(weight(c, 200 + e, c.inter, c.hidden));
      down.push_back(weight(c, 300 + e, c.hidden, c.inter));
    }
  }
  static HostMatrix weight(const MoeCase& c, int seed, std::int64_t rows, std::int64_t cols) {
    return {c.weight_spec, rows, cols,
            normal_values(static_cast<std::uint64_t>(seed), rows * cols, 0.1)};
  }

  HostMatrix x;
  std::vector<std::int32_t> choices;
  std::vector<float> choice_weights;
  HostMatrix shared;
  std::vector<HostMatrix> gate, up, down;
};

// What dispatch gives.
struct MoeRows {
  std::vector<std::int32_t> expert_offsets, row_tokens, row_experts, token_rows;
  std::vector<float> row_weights;
};

// A layer's experts on a device; the ops' params, wired to each other.
class DeviceMoe {
 public:
  DeviceMoe(Backend& backend, const MoeCase& c, const MoeInputs& in)
      : x(backend, in.x),
        choices(backend, in.choices),
        choice_weights(backend, in.choice_weights),
        shared(backend, in.shared),
        expert_offsets(backend, c.num_experts + 1),
        row_tokens(backend, c.tokens * c.experts_per_token),
        row_experts(backend, c.tokens * c.experts_per_token),
        row_weights(backend, c.tokens * c.experts_per_token),
        token_rows(backend, c.tokens * c.experts_per_token),
        activated(backend, HostMatrix(c.out_spec, c.tokens * c.experts_per_token, c.inter)),
        expert_out(backend, HostMatrix(c.out_spec, c.tokens * c.experts_per_token, c.hidden)),
        out(backend, HostMatrix(c.out_spec, c.tokens, c.hidden)) {
    for (int e = 0; e < c.num_experts; ++e) {
      weights_.push_back(std::make_unique<DeviceMatrix>(backend, in.gate[e]));
      gate_views.push_back(weights_.back()->view());
      weights_.push_back(std::make_unique<DeviceMatrix>(backend, in.up[e]));
      up_views.push_back(weights_.back()->view());
      weights_.push_back(std::make_unique<DeviceMatrix>(backend, in.down[e]));
      down_views.push_back(weights_.back()->view());
    }
    dispatch.expert_idx = choices.data();
    dispatch.expert_weights = choice_weights.data();
    dispatch.tokens = c.tokens;
    dispatch.experts_per_token = c.experts_per_token;
    dispatch.num_experts = c.num_experts;
    dispatch.expert_offsets = expert_offsets.data();
    dispatch.row_tokens = row_tokens.data();
    dispatch.row_experts = row_experts.data();
    dispatch.row_weights = row_weights.data();
    dispatch.token_rows = token_rows.data();
    gate_up.x = x.view();
    gate_up.row_tokens = row_tokens.data();
    gate_up.gate_weights = gate_views.data();
    gate_up.up_weights = up_views.data();
    gate_up.num_experts = c.num_experts;
    gate_up.expert_offsets = expert_offsets.data();
    gate_up.row_weights = row_weights.data();
    gate_up.swiglu_limit = c.swiglu_limit;
    gate_up.out = activated.mutable_view();
    down.x = activated.view();
    down.down_weights = down_views.data();
    down.num_experts = c.num_experts;
    down.expert_offsets = expert_offsets.data();
    down.out = expert_out.mutable_view();
    combine.expert_out = expert_out.view();
    combine.token_rows = token_rows.data();
    combine.experts_per_token = c.experts_per_token;
    combine.shared_out = shared.view();
    combine.out = out.mutable_view();
  }
  MoeRows rows() const {
    return {expert_offsets.read(), row_tokens.read(), row_experts.read(), token_rows.read(),
            row_weights.read()};
  }
  void run(Backend& backend) {
    run_op(backend, dispatch);
    run_op(backend, gate_up);
    run_op(backend, down);
    run_op(backend, combine);
  }

  MoeDispatchParams dispatch;
  ExpertGateUpParams gate_up;
  ExpertDownParams down;
  MoeCombineParams combine;
  DeviceMatrix x;
  DeviceArray<std::int32_t> choices;
  DeviceArray<float> choice_weights;
  DeviceMatrix shared;
  DeviceArray<std::int32_t> expert_offsets, row_tokens, row_experts;
  DeviceArray<float> row_weights;
  DeviceArray<std::int32_t> token_rows;
  DeviceMatrix activated, expert_out, out;
  std::vector<MatrixView> gate_views, up_views, down_views;

 private:
  std::vector<std::unique_ptr<DeviceMatrix>> weights_;
};

}  // namespace dsv4::testing
