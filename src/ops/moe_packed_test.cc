// The contract of packed experts and of NVFP4 rows out of gate_up: refusals, cost, and that
// backends which read weights as they are say so.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string_view>

#include "backends/backends.h"
#include "testing/cases/expert_gemm_cases.h"
#include "testing/refusals.h"

namespace dsv4::testing {
namespace {

// Packed params over memory that nothing follows.
struct PackedCase {
  explicit PackedCase(const MatrixSpec& weight_spec = nvfp4_spec(),
                      const MatrixSpec& out_spec = bf16_spec())
      : c(small_case(weight_spec, out_spec)) {
    unpacked.down.x.rows = unpacked.down.out.rows;
  }
  static ExpertGemmCase small_case(const MatrixSpec& weight_spec, const MatrixSpec& out_spec) {
    ExpertGemmCase c;
    c.k = 64;
    c.n = 32;
    c.weight_spec = weight_spec;
    c.out_spec = out_spec;
    return c;
  }
  PackedExperts packed() const { return {&c, c.weight_spec.format, c.n, c.k}; }
  ExpertGateUpParams gate_up() const {
    ExpertGateUpParams p = unpacked.gate_up;
    p.gate_weights = p.up_weights = nullptr;
    p.packed = packed();
    return p;
  }
  ExpertDownParams down() const {
    ExpertDownParams p = unpacked.down;
    p.down_weights = nullptr;
    p.packed = packed();
    return p;
  }
  ExpertPackParams pack() {
    ExpertPackParams p;
    p.weights = weights->weight_views.data();
    p.up_weights = weights->up_views.data();
    p.num_experts = c.num_experts();
    p.out = &c;
    return p;
  }

  ExpertGemmCase c;
  ExpertGemmInputs in{c};
  std::shared_ptr<DeviceExperts> weights =
      std::make_shared<DeviceExperts>(reference_backend(), in.weights, in.up);
  DeviceExpertGemm unpacked{reference_backend(), c, in, weights};
};

template <class Params, class Change>
void expect_refused_when(Params params, Change change, std::string_view part) {
  check(params);
  change(params);
  expect_refused(params, {part});
}

TEST(MoePacked, RefusalsOfPackNameTheField) {
  PackedCase example;
  std::vector<MatrixView> views = example.weights->weight_views;
  const auto refused = [&](auto change, std::string_view part) {
    expect_refused_when(example.pack(), change, part);
  };
  using P = ExpertPackParams;
  refused([](P& p) { p.num_experts = 0; }, "ExpertPackParams.num_experts is 0, must be at least 1");
  refused([](P& p) { p.weights = nullptr; }, "ExpertPackParams.weights is null");
  const auto refused_at_2 = [&](auto change, std::string_view part) {
    views[2] = example.weights->weight_views[2];
    change(views[2]);
    refused([&](P& p) { p.weights = views.data(); }, part);
    std::string up_part(part);
    up_part.replace(up_part.find(".weights"), 8, ".up_weights");
    refused([&](P& p) { p.up_weights = views.data(); }, up_part);
  };
  refused_at_2([](MatrixView& m) { m.rows = 31; },
               "ExpertPackParams.weights[2].rows is 31, must be weights[0].rows = 32");
  refused_at_2([](MatrixView& m) { m.cols = 48; },
               "ExpertPackParams.weights[2].cols is 48, must be weights[0].cols = 64");
  refused_at_2([](MatrixView& m) { m.data = nullptr; }, "ExpertPackParams.weights[2].data is null");
  refused_at_2([](MatrixView& m) { m.global_scales = nullptr; },
               "ExpertPackParams.weights[2].global_scales is null");
  refused_at_2([](MatrixView& m) { m.format = Format::kBf16; },
               "ExpertPackParams.weights[2].format is BF16, must be weights[0].format = NVFP4");
  P down = example.pack();
  down.up_weights = nullptr;
  check(down);
}

// Both params in turn; the down GEMM's weights are named down_weights.
TEST(MoePacked, RefusalsOfPackedWeightsNameTheField) {
  PackedCase example;
  const auto both_refused = [&](auto change, std::string_view part) {
    expect_refused_when(example.gate_up(), change, "ExpertGateUpParams." + std::string(part));
    expect_refused_when(example.down(), change, "ExpertDownParams." + std::string(part));
  };
  both_refused([](auto& p) { p.packed.rows = 33; }, "packed.rows is 33");
  both_refused([](auto& p) { p.packed.cols = 32; }, "packed.cols is 32");
  both_refused([](auto& p) { p.packed.format = Format::kE4m3; },
               "packed.format is FP8, must be MXFP4 or NVFP4");
  both_refused([](auto& p) { p.packed.format = Format::kBf16; }, "packed.format is BF16");
  both_refused([](auto& p) { p.num_experts = -1; }, "num_experts is -1");
  both_refused([](auto& p) { p.expert_offsets = nullptr; }, "expert_offsets is null");

  const MatrixView* const matrices = example.weights->weight_views.data();
  constexpr std::string_view kBoth = "packed is set; the arrays of weights must be null";
  using G = ExpertGateUpParams;
  expect_refused_when(
      example.gate_up(), [&](G& p) { p.gate_weights = matrices; }, kBoth);
  expect_refused_when(
      example.gate_up(), [&](G& p) { p.up_weights = matrices; }, kBoth);
  using D = ExpertDownParams;
  expect_refused_when(
      example.down(), [&](D& p) { p.down_weights = matrices; }, kBoth);
  // Neither.
  expect_refused_when(
      example.gate_up(), [](G& p) { p.packed = {}; }, "gate_weights is null");
  expect_refused_when(
      example.down(), [](D& p) { p.packed = {}; }, "down_weights is null");
}

TEST(MoePacked, RefusalsOfNvfp4RowsNameTheField) {
  const PackedCase example(nvfp4_spec(), nvfp4_spec(true));
  const auto refused = [&](auto change, std::string_view part) {
    expect_refused_when(example.gate_up(), change, part);
  };
  using G = ExpertGateUpParams;
  refused([](G& p) { p.out_global_scales = nullptr; },
          "ExpertGateUpParams.out_global_scales is null, must point to [num_experts]");
  refused([](G& p) { p.out.global_scale_stride = 0; },
          "ExpertGateUpParams.out.global_scale_stride is 0, must be one global scale a row = 1");
  refused([](G& p) { p.out.global_scales = nullptr; },
          "ExpertGateUpParams.out.global_scales is null");
  refused([](G& p) { p.out.block_scales = nullptr; },
          "ExpertGateUpParams.out.block_scales is null");
  refused([](G& p) { p.out.scale_stride = 1; }, "ExpertGateUpParams.out.scale_stride is 1");
  refused([](G& p) { p.out.format = Format::kMxfp4; }, "ExpertGateUpParams.out.format is MXFP4");
  // Down has no such output.
  ExpertDownParams down = example.down();
  expect_refused(down, {"ExpertDownParams.out.format is NVFP4"});
}

// A packed expert counts as many bytes as its matrices, without their global scales, which are no
// part of PackedExperts.
TEST(MoePacked, CostIsThatOfTheMatrices) {
  for (const MatrixSpec& spec : {nvfp4_spec(), mxfp4_spec()}) {
    SCOPED_TRACE(spec.name);
    const PackedCase example(spec);
    const std::int64_t global_scales = spec.format == Format::kNvfp4 ? 4 : 0;
    for (const std::int64_t rows : {0, 1, 3, 4, 9}) {  // of four experts
      const std::int64_t reached = std::min<std::int64_t>(rows, 4);
      const auto with_rows = [&](auto p) {
        p.x.rows = p.out.rows = rows;
        return cost(p);
      };
      const Cost gate_up = with_rows(example.unpacked.gate_up);
      const Cost packed_gate_up = with_rows(example.gate_up());
      EXPECT_EQ(packed_gate_up.flops, gate_up.flops);
      EXPECT_EQ(packed_gate_up.bytes_read, gate_up.bytes_read - reached * 2 * global_scales);
      EXPECT_EQ(packed_gate_up.bytes_written, gate_up.bytes_written);
      const Cost down = with_rows(example.unpacked.down);
      const Cost packed_down = with_rows(example.down());
      EXPECT_EQ(packed_down.flops, down.flops);
      EXPECT_EQ(packed_down.bytes_read, down.bytes_read - reached * global_scales);
    }
  }
}

TEST(MoePacked, CostCountsCodesScalesAndNvfp4Rows) {
  const PackedCase example(nvfp4_spec(), nvfp4_spec(true));
  const Cost got = cost(example.gate_up());
  // Nine rows of four experts; x: 6 of 6 tokens are counted, [32, 64] weights of 4.5 bits.
  const std::int64_t x_rows = example.in.x.rows;
  EXPECT_EQ(got.bytes_read,
            x_rows * 64 * 2 + 4 * 2 * (32 * 64 / 2 + 32 * 64 / 16) + 5 * 4 + 9 * 4 + 9 * 4);
  EXPECT_EQ(got.bytes_written, 9 * (32 / 2 + 32 / 16 + 4));
  PackedCase copy(nvfp4_spec());
  const Cost pack = cost(copy.pack());
  EXPECT_EQ(pack.bytes_read, 4 * 2 * (32 * 64 / 2 + 32 * 64 / 16 + 4));
  EXPECT_EQ(pack.bytes_written, pack.bytes_read);
  EXPECT_EQ(pack.flops, 0);
}

TEST(MoePacked, BackendsThatDoNotPackRefuseInWords) {
  PackedCase example;
  int refusing = 0;
  for (const std::string_view name : {"reference", "cpu"}) {
    SCOPED_TRACE(name);
    const std::unique_ptr<Backend> backend = open_backend(std::string(name));
    EXPECT_EQ(backend->packed_bytes(example.pack()), 0);
    const auto expect_unsupported = [&](const auto& params) {
      try {
        backend->run(params);
        ADD_FAILURE() << "accepted";
      } catch (const Error& error) {
        EXPECT_EQ(error.code(), ErrorCode::kUnsupported);
        EXPECT_THAT(error.what(), ::testing::HasSubstr("never packed"));
        ++refusing;
      }
    };
    expect_unsupported(example.pack());
    expect_unsupported(example.gate_up());
    expect_unsupported(example.down());
  }
  EXPECT_EQ(refusing, 6);
}

}  // namespace
}  // namespace dsv4::testing
