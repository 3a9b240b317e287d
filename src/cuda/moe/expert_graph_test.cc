// The expert GEMMs in a CUDA graph that is recorded once: what is in offsets, row_tokens, weights
// of rows and x at a replay decides, and gives the bits of direct launches.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <memory>
#include <set>
#include <typeindex>
#include <utility>
#include <vector>

#include "cuda/cuda_test.h"
#include "cuda/graph.h"
#include "cuda/moe/expert_shapes.h"
#include "numerics/bf16.h"
#include "testing/cases/expert_gemm_cases.h"

namespace dsv4::cuda {
namespace {

using testing::DeviceArray;
using testing::RowCounts;

using ExpertGemmGraphTest = CudaTest;

constexpr std::int64_t kHidden = 176, kTokens = 40;

testing::DeviceExperts experts_of(CudaBackend& backend, bool gate_up, int num_experts,
                                  std::int64_t inter) {
  testing::ExpertGemmCase c;
  c.gate_up = gate_up;
  c.expert_rows = RowCounts(static_cast<std::size_t>(num_experts), 0);
  c.k = gate_up ? kHidden : inter;
  c.n = gate_up ? inter : kHidden;
  const testing::ExpertGemmInputs in(c);
  return {backend, in.weights, in.up};
}

// gate_up and down of one layer, one behind the other, in buffers for `rows` rows.
class Layer {
 public:
  Layer(CudaBackend& backend, int num_experts, std::int64_t rows, std::int64_t inter)
      : backend_(backend),
        rows_(rows),
        inter_(inter),
        owned_(backend.create_stream()),
        gate_up_experts_(experts_of(backend, true, num_experts, inter)),
        down_experts_(experts_of(backend, false, num_experts, inter)),
        x_(backend, kTokens * kHidden),
        hidden_rows_(backend, rows * inter),
        out_(backend, rows * kHidden),
        offsets_(backend, num_experts + 1),
        row_tokens_(backend, rows),
        row_weights_(backend, rows) {
    gate_up_.x = bf16_matrix(x_.data(), kTokens, kHidden);
    gate_up_.row_tokens = row_tokens_.data();
    gate_up_.row_weights = row_weights_.data();
    gate_up_.swiglu_limit = 10;
    gate_up_.packed = gate_up_experts_.packed;
    gate_up_.out = bf16_matrix(hidden_rows_.data(), rows, inter);
    down_.x = gate_up_.out;
    down_.packed = down_experts_.packed;
    down_.out = bf16_matrix(out_.data(), rows, kHidden);
    gate_up_.num_experts = down_.num_experts = num_experts;
    gate_up_.expert_offsets = down_.expert_offsets = offsets_.data();
  }

  cudaStream_t stream() const { return static_cast<cudaStream_t>(owned_->get().handle); }

  // Queues both on the stream.
  void launch() {
    OpContext context;
    context.stream = owned_->get();
    backend_.run(gate_up_, context);
    backend_.run(down_, context);
  }

  // Other contents in the same buffers.
  void write(const RowCounts& expert_rows, std::uint64_t seed) {
    testing::Random random(seed);
    std::vector<std::int32_t> offsets = {0};
    for (const std::int64_t rows : expert_rows) {
      offsets.push_back(offsets.back() + static_cast<std::int32_t>(rows));
    }
    active_rows_ = offsets.back();
    std::vector<std::int32_t> tokens(static_cast<std::size_t>(rows_), -1);
    std::vector<float> weights(static_cast<std::size_t>(rows_), std::nanf(""));
    for (std::int64_t r = 0; r < active_rows_; ++r) {
      tokens[r] = static_cast<std::int32_t>(random.index(kTokens));
      weights[r] = static_cast<float>(random.uniform(0.1, 1));
    }
    std::vector<std::uint16_t> x;
    for (const float value : testing::normal_values(seed, kTokens * kHidden)) {
      x.push_back(encode_bf16(value));
    }
    offsets_.write(offsets);
    row_tokens_.write(tokens);
    row_weights_.write(weights);
    x_.write(x);
  }

  // What `queue` leaves in both outputs, which were poison: active rows must be numbers, all others
  // poison still.
  template <class Queue>
  std::vector<std::uint16_t> outputs_of(const Queue& queue) {
    hidden_rows_.poison();
    out_.poison();
    queue();
    backend_.synchronize(owned_->get());
    std::vector<std::uint16_t> outputs = hidden_rows_.read();
    const std::vector<std::uint16_t> out = out_.read();
    expect_rows(outputs, inter_);
    expect_rows(out, kHidden);
    outputs.insert(outputs.end(), out.begin(), out.end());
    return outputs;
  }

 private:
  void expect_rows(const std::vector<std::uint16_t>& values, std::int64_t cols) const {
    const auto active_end = values.begin() + active_rows_ * cols;
    const auto is_nan = [](std::uint16_t bits) { return std::isnan(decode_bf16(bits)); };
    EXPECT_TRUE(std::none_of(values.begin(), active_end, is_nan)) << "in active rows";
    const auto is_poison = [](std::uint16_t bits) { return bits == 0xFFFF; };
    EXPECT_TRUE(std::all_of(active_end, values.end(), is_poison)) << "not in the others";
  }

  CudaBackend& backend_;
  std::int64_t rows_;
  std::int64_t inter_;
  std::int64_t active_rows_ = 0;
  std::unique_ptr<OwnedStream> owned_;
  testing::DeviceExperts gate_up_experts_, down_experts_;
  DeviceArray<std::uint16_t> x_, hidden_rows_, out_;
  DeviceArray<std::int32_t> offsets_, row_tokens_;
  DeviceArray<float> row_weights_;
  ExpertGateUpParams gate_up_;
  ExpertDownParams down_;
};

// `rows` rows over the experts as unevenly as random numbers make it.
RowCounts spread(int num_experts, std::int64_t rows, std::uint64_t seed) {
  testing::Random random(seed);
  RowCounts counts(static_cast<std::size_t>(num_experts), 0);
  for (std::int64_t r = 0; r < rows; ++r) ++counts[random.index(num_experts)];
  return counts;
}

RowCounts all_on(int num_experts, std::int64_t rows, int expert) {
  RowCounts counts(static_cast<std::size_t>(num_experts), 0);
  counts[expert] = rows;
  return counts;
}

void expect_replays_follow_contents(CudaBackend& backend, int num_experts, std::int64_t rows,
                                    std::int64_t inter) {
  Layer layer(backend, num_experts, rows, inter);
  // Offsets and tokens are poison until the graph is recorded: it can hold none of them.
  const Graph graph(layer.stream(), [&] { layer.launch(); });
  struct Contents {
    const char* name;
    RowCounts expert_rows;
    std::uint64_t seed;
  };
  const Contents kinds[] = {{"all rows", spread(num_experts, rows, 1), 1},
                            {"half of them", spread(num_experts, rows / 2, 2), 2},
                            {"none", RowCounts(static_cast<std::size_t>(num_experts), 0), 3},
                            {"all on one", all_on(num_experts, rows, 2), 4},
                            {"all on the last", all_on(num_experts, rows, num_experts - 1), 5},
                            {"one row", all_on(num_experts, 1, 1), 6},
                            {"all rows again", spread(num_experts, rows, 1), 1}};
  std::vector<std::uint16_t> first, before;
  for (const Contents& contents : kinds) {
    SCOPED_TRACE(contents.name);
    layer.write(contents.expert_rows, contents.seed);
    const auto replayed = layer.outputs_of([&] { graph.replay(layer.stream()); });
    EXPECT_TRUE(replayed == layer.outputs_of([&] { layer.launch(); }))
        << "other bits than a launch";
    EXPECT_TRUE(replayed != before) << "the bits of other contents";
    before = replayed;
    if (first.empty()) first = replayed;
  }
  EXPECT_TRUE(before == first) << "other bits for the same contents";
}

// Numbers of experts and rows for each of the kernels; down's rows come one by one, or where its
// inputs are whole chunks of 64 columns by tensor copies, whose maps a graph holds.
TEST_F(ExpertGemmGraphTest, ReplaysFollowWhatIsInTheBuffers) {
  constexpr std::pair<int, std::int64_t> kSizes[] = {
      {8, 40}, {32, 160}, {8, 160}, {8, 480}, {4, 520}};
  std::set<std::type_index> kernels;
  for (const auto& [num_experts, rows] : kSizes) {
    with_shape_for(rows, num_experts, [&](auto shape) { kernels.insert(typeid(shape)); });
    for (const std::int64_t inter : {144, 192}) {
      SCOPED_TRACE(fmt::format("{} rows of {} experts, {} neurons", rows, num_experts, inter));
      expect_replays_follow_contents(backend(), num_experts, rows, inter);
    }
  }
  EXPECT_EQ(kernels.size(), 5u);
}

}  // namespace
}  // namespace dsv4::cuda
