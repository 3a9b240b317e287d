// The expert GEMMs on a GPU: what they refuse and in which words, which kernel takes which case,
// operands past 2^31 elements and up to 4 GiB, and the most tokens of a step. Arithmetic:
// ops/expert_gemm_test.cc and its neighbours, on every backend.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <limits>
#include <map>
#include <memory>
#include <string>
#include <typeindex>
#include <vector>

#include "base/math.h"
#include "cuda/cuda_test.h"
#include "cuda/moe/expert_shapes.h"
#include "cuda/moe/moe.h"
#include "testing/cases/expert_gemm_small_cases.h"
#include "testing/expert_gemm_judge.h"

namespace dsv4::cuda {
namespace {

using testing::DeviceArray;
using testing::DeviceExpertGemm;
using testing::ExpertGemmCase;
using testing::ExpertGemmInputs;
using ::testing::HasSubstr;
using testing::HostMatrix;
using testing::RowCounts;

using ExpertGemmSizeTest = CudaTest;

// Params over no memory: `supports` looks at shapes only.
ExpertDownParams down_params() {
  static const std::byte nothing{};
  ExpertDownParams p;
  p.packed = {&nothing, Format::kNvfp4, 64, 32};
  p.x = bf16_matrix(static_cast<const std::uint16_t*>(nullptr), 4, 32);
  p.out = bf16_matrix(static_cast<std::uint16_t*>(nullptr), 4, 64);
  p.num_experts = 3;
  return p;
}

TEST(ExpertGemmSupport, RefusalsSayWhatIsWrong) {
  EXPECT_TRUE(supports_expert_down(down_params()));
  const auto reason = [](auto change) {
    ExpertDownParams p = down_params();
    change(p);
    return supports_expert_down(p).reason;
  };
  using P = ExpertDownParams;
  EXPECT_THAT(reason([](P& p) { p.packed = {}; }), HasSubstr("weights must be packed"));
  EXPECT_THAT(reason([](P& p) { p.x.format = Format::kF32; }), HasSubstr("x is F32, must be BF16"));
  EXPECT_THAT(reason([](P& p) { p.x.row_stride = 36; }), HasSubstr("x.row_stride is 36"));
  EXPECT_THAT(reason([](P& p) { p.out.row_stride = 68; }), HasSubstr("68 from row to row"));
  EXPECT_THAT(reason([](P& p) { p.out.cols = 60; }), HasSubstr("out has 60 columns"));
  EXPECT_THAT(reason([](P& p) { p.x.cols = 0; }), HasSubstr("no columns"));
  constexpr std::int64_t kMostRows = 67108863;  // of 64 bytes, in 4 GiB - 1
  EXPECT_EQ(reason([](P& p) { p.x.rows = kMostRows; }), "");
  EXPECT_THAT(reason([](P& p) { p.x.rows = kMostRows + 1; }),
              HasSubstr("x has 67108864 rows of 64 bytes, more than 4 GiB"));
  EXPECT_THAT(reason([](P& p) { p.num_experts = 1025; }), HasSubstr("1025 experts, at most 1024"));
  EXPECT_EQ(reason([](P& p) { p.num_experts = 1024; }), "");

  const HostMatrix bf16(testing::bf16_spec(), 16, 16), nvfp4(testing::nvfp4_spec(), 16, 16);
  ExpertPackParams pack;
  pack.num_experts = 1;
  MatrixView view = nvfp4.view();
  pack.weights = &view;
  EXPECT_TRUE(supports_expert_pack(pack));
  view.cols = 0;  // then there may be no global scales either
  EXPECT_THAT(supports_expert_pack(pack).reason, HasSubstr("no columns"));
  view = bf16.view();
  EXPECT_THAT(supports_expert_pack(pack).reason, HasSubstr("weights are BF16"));
}

// Bytes of the released models' experts, to the byte, and against those of the published form:
// codes and block scales, and a global scale a matrix in NVFP4.
TEST(ExpertGemmSupport, PackedBytesOfReleasedModels) {
  struct Gemm {
    std::int64_t rows, cols;
    bool gate_up;
    std::int64_t nvfp4_bytes, mxfp4_bytes;  // of an expert
  };
  // Slabs of 64 rows, chunks of 64 columns (2,304 and 2,176 bytes), four bytes a row.
  constexpr Gemm kGemms[] = {
      {2048, 4096, true, 64 * 64 * 2304 + 4096 * 4, 64 * 64 * 2176 + 4096 * 4},
      {4096, 2048, false, 64 * 32 * 2304 + 4096 * 4, 64 * 32 * 2176 + 4096 * 4},
      {3072, 7168, true, 96 * 112 * 2304 + 6144 * 4, 96 * 112 * 2176 + 6144 * 4},
      {7168, 3072, false, 112 * 48 * 2304 + 7168 * 4, 112 * 48 * 2176 + 7168 * 4}};
  for (const Gemm& gemm : kGemms) {
    for (const Format format : {Format::kNvfp4, Format::kMxfp4}) {
      SCOPED_TRACE(std::to_string(gemm.rows) + " x " + std::to_string(gemm.cols));
      MatrixView matrix;
      matrix.format = format;
      matrix.rows = gemm.rows;
      matrix.cols = gemm.cols;
      ExpertPackParams pack;
      pack.weights = &matrix;
      pack.up_weights = gemm.gate_up ? &matrix : nullptr;
      pack.num_experts = 3;
      const bool nvfp4 = format == Format::kNvfp4;
      const std::int64_t bytes = expert_packed_bytes(pack);
      EXPECT_EQ(bytes, 3 * (nvfp4 ? gemm.nvfp4_bytes : gemm.mxfp4_bytes));
      const std::int64_t values = gemm.rows * gemm.cols;
      const std::int64_t published = values / 2 + values / (nvfp4 ? 16 : 32) + (nvfp4 ? 4 : 0);
      EXPECT_LE(static_cast<double>(bytes),
                1.03 * static_cast<double>(3 * (gemm.gate_up ? 2 : 1) * published));
    }
  }
}

// No experts have no weights, and every row is inactive.
TEST(ExpertGemmSupport, NoExpertsNeedNoWeights) {
  ExpertDownParams p = down_params();
  p.num_experts = 0;
  p.packed = {};
  EXPECT_EQ(supports_expert_down(p).reason, "");
  launch_expert_down(p, nullptr);  // nothing, which needs no device
}

// Copies of 16 bytes would fault on the device.
TEST(ExpertGemmSupport, OperandsAreAligned) {
  alignas(16) static std::byte bytes[32] = {};
  const auto expect_refusal = [](const auto& launch) {
    try {
      launch();
      FAIL() << "no refusal";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kBadRequest);
      EXPECT_THAT(error.what(), HasSubstr("aligned to 16 bytes"));
    }
  };
  ExpertDownParams p = down_params();
  p.packed.data = bytes + 8;
  expect_refusal([&] { launch_expert_down(p, nullptr); });
  ExpertPackParams pack;
  const MatrixView matrix = {.format = Format::kNvfp4, .rows = 64, .cols = 32};
  pack.weights = &matrix;
  pack.num_experts = 1;
  pack.out = bytes + 8;
  expect_refusal([&] { launch_expert_pack(pack, nullptr); });
}

constexpr std::int64_t kSms = 132;  // of an H100 or H200

// The kernel of a case; and that its K goes round the ring and on, or that it has more units than
// there can be CTAs.
std::type_index kernel_of(const ExpertGemmCase& c, bool many_units) {
  std::type_index kernel = typeid(void);
  with_shape_for(c.rows(), c.num_experts(), [&](auto shape) {
    using Shape = decltype(shape);
    kernel = typeid(Shape);
    const ExpertLayout layout = ExpertLayout::of(c.weight_spec.format, c.n, c.k, c.gate_up);
    if (!many_units) {
      EXPECT_GT(layout.chunks * kChunkCols, Shape::kRingCols) << c.name;
      return;
    }
    std::int64_t tiles = 0;
    for (const std::int64_t rows : c.expert_rows) tiles += ceil_div(rows, Shape::kMaxTile);
    EXPECT_GT(tiles * ceil_div(layout.slabs, Shape::kWarpgroups), kSms * Shape::kCtas) << c.name;
  });
  return kernel;
}

// What compute-sanitizer sees (tools/gpu_check.sh) leaves no kernel out.
TEST(ExpertGemmSupport, SmallCasesReachEveryKernel) {
  std::map<std::string, std::type_index> kernels;  // of each name, one
  std::map<std::string, int> of_form;              // cases, each of another kernel
  const auto add = [&](const ExpertGemmCase& c, bool many_units) {
    const std::size_t name_end = c.name.find(' ');
    const std::type_index kernel = kernel_of(c, many_units);
    const auto known = kernels.emplace(c.name.substr(0, name_end), kernel).first;
    EXPECT_EQ(known->second, kernel) << c.name;
    ++of_form[(many_units ? "many units of" : "") + c.name.substr(name_end)];
    // Which way x comes is told by these alone.
    EXPECT_EQ(!c.gate_up && c.k % kChunkCols == 0, c.name.find("whole chunks") < c.name.size());
  };
  for (const ExpertGemmCase& c : testing::small_expert_gemm_cases(true)) add(c, false);
  for (const ExpertGemmCase& c : testing::many_unit_expert_gemm_cases()) add(c, true);
  std::map<std::type_index, int> distinct;
  for (const auto& [name, kernel] : kernels) ++distinct[kernel];
  EXPECT_EQ(distinct.size(), 5u);
  EXPECT_EQ(kernels.size(), 5u);
  // Two formats of weights times three ways times two or three outputs; three ways with many units.
  EXPECT_EQ(of_form.size(), 2u * (3 + 2 + 2) + 3);
  for (const auto& [form, cases] : of_form) EXPECT_EQ(cases, 5) << form;
}

// The last row of the largest x gives the same bits as in a small one; one row more is refused.
TEST_F(ExpertGemmSizeTest, XOfFourGib) {
  ExpertGemmCase c;
  c.expert_rows = {2, 3};
  c.k = 7168;
  c.n = 48;
  c.x_spec = testing::bf16_spec();
  const ExpertGemmInputs in(c);
  DeviceExpertGemm gemm(backend(), c, in);
  const HostMatrix want = gemm.run();

  const std::int64_t rows = std::numeric_limits<std::uint32_t>::max() / (2 * c.k);
  const DeviceBuffer x = backend().allocate(rows * 2 * c.k);
  backend().fill(x.data(), testing::kPoisonByte, x.size_bytes(), {});
  std::vector<std::int32_t> row_tokens;
  for (const std::int32_t token : in.row_tokens) {
    row_tokens.push_back(static_cast<std::int32_t>(rows - 1 - token));
    backend().copy_to_device(x.data() + (rows - 1 - token) * 2 * c.k,
                             in.x.data.data() + token * 2 * c.k, 2 * c.k, {});
  }
  const DeviceArray<std::int32_t> tokens(backend(), row_tokens);
  gemm.gate_up.x = bf16_matrix(x.as<const std::uint16_t>(), rows, c.k);
  gemm.gate_up.row_tokens = tokens.data();
  EXPECT_EQ(gemm.run().data, want.data);
  ++gemm.gate_up.x.rows;
  EXPECT_THAT(backend().supports(gemm.gate_up).reason, HasSubstr("more than 4 GiB"));
}

TEST_F(ExpertGemmSizeTest, OutputsPast2To31Elements) {
  ExpertGemmCase c;
  c.gate_up = false;
  c.expert_rows = {3, 5};
  c.k = 16;
  c.n = 8192;
  c.x_spec = testing::bf16_spec();
  const ExpertGemmInputs in(c);
  DeviceExpertGemm gemm(backend(), c, in);
  const HostMatrix want = gemm.run();

  // The same rows as the last of each expert.
  const std::int64_t ends[] = {269000, 270000};
  static_assert(268997 * std::int64_t{8192} > std::int64_t{1} << 31);
  std::vector<std::int64_t> at;
  for (int e = 0; e < 2; ++e) {
    for (std::int64_t r = 0; r < c.expert_rows[e]; ++r)
      at.push_back(ends[e] - c.expert_rows[e] + r);
  }
  const std::int64_t x_bytes = 2 * c.k, out_bytes = 2 * c.n;
  std::vector<std::uint8_t> x(static_cast<std::size_t>(ends[1] * x_bytes));
  for (std::size_t r = 0; r < at.size(); ++r) {
    std::copy_n(in.x.data.begin() + static_cast<std::int64_t>(r) * x_bytes, x_bytes,
                x.begin() + at[r] * x_bytes);
  }
  const DeviceArray<std::uint8_t> device_x(backend(), x);
  const DeviceArray<std::int32_t> offsets(
      backend(), {0, static_cast<std::int32_t>(ends[0]), static_cast<std::int32_t>(ends[1])});
  const DeviceBuffer out = backend().allocate(ends[1] * out_bytes);
  gemm.down.x = bf16_matrix(reinterpret_cast<const std::uint16_t*>(device_x.data()), ends[1], c.k);
  gemm.down.expert_offsets = offsets.data();
  gemm.down.out = bf16_matrix(out.as<std::uint16_t>(), ends[1], c.n);
  testing::run_op(backend(), gemm.down);
  std::vector<std::uint8_t> got(want.data.size());
  for (std::size_t r = 0; r < at.size(); ++r) {
    backend().copy_to_host(got.data() + static_cast<std::int64_t>(r) * out_bytes,
                           out.data() + at[r] * out_bytes, out_bytes, {});
  }
  backend().synchronize({});
  EXPECT_EQ(got, want.data);
}

constexpr std::int64_t kMostTokens = 65536;
constexpr std::int64_t kMostRows = 6 * kMostTokens;

// gate_up in both formats of the output and down with both ways of its rows.
std::vector<ExpertGemmCase> most_token_cases() {
  std::vector<ExpertGemmCase> cases;
  ExpertGemmCase c;
  c.tokens = kMostTokens;
  c.k = 64;
  c.n = 48;
  for (const testing::MatrixSpec& out : {testing::bf16_spec(), testing::nvfp4_spec(true)}) {
    c.name = "gate_up out " + out.name;
    c.out_spec = out;
    cases.push_back(c);
  }
  c.gate_up = false;
  c.out_spec = testing::bf16_spec();
  c.weight_spec = testing::mxfp4_spec();
  for (const std::int64_t k : {64, 96}) {
    c.name = "down of " + std::to_string(k);
    c.k = k;
    cases.push_back(c);
  }
  return cases;
}

// No token, 65,536 tokens of six experts each, and as many rows of which none is in use: their
// outputs stay as they were.
TEST_F(ExpertGemmSizeTest, NoTokensAnd65536OnManyExperts) {
  constexpr int kExperts = 256;
  struct Rows {
    const char* name;
    RowCounts expert_rows;
    std::int64_t spare_rows;
  };
  RowCounts ascending, on_one(kExperts, 0);
  for (int e = 0; e < kExperts; ++e) ascending.push_back(6 + 12 * e);
  on_one[100] = kMostRows;
  const RowCounts none(kExperts, 0);
  const Rows kinds[] = {{"6 to 3,066 rows each", ascending, 0},
                        {"all on one", on_one, 0},
                        {"none", none, 0},
                        {"none of many", none, kMostRows}};
  for (ExpertGemmCase c : most_token_cases()) {
    std::shared_ptr<testing::DeviceExperts> experts;
    for (const Rows& kind : kinds) {
      SCOPED_TRACE(c.name + ", " + kind.name);
      c.expert_rows = kind.expert_rows;
      c.spare_rows = kind.spare_rows;
      ASSERT_TRUE(c.rows() == 0 || c.rows() == kMostRows);
      const ExpertGemmInputs in(c);
      if (!experts) {
        experts = std::make_shared<testing::DeviceExperts>(backend(), in.weights, in.up);
      }
      testing::expect_follows_formula(c, in, DeviceExpertGemm(backend(), c, in, experts).run(),
                                      {97, 1});
    }
  }
}

}  // namespace
}  // namespace dsv4::cuda
