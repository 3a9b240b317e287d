// Every vector of tests/data/golden/codecs, byte for byte.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "numerics/bf16.h"
#include "numerics/e2m1.h"
#include "numerics/e4m3.h"
#include "numerics/e8m0.h"
#include "numerics/nvfp4.h"
#include "testing/golden_codecs.h"

namespace dsv4 {
namespace {

using Bits = std::uint32_t;

std::string golden_path(const std::string& file) {
  return std::string(DSV4_SOURCE_DIR "/tests/data/golden/codecs/") + file;
}

class GoldenCodecs : public ::testing::Test {
 protected:
  static float bf16(std::size_t pattern) {
    return decode_bf16(static_cast<std::uint16_t>(pattern));
  }

  GoldenTensors golden_{golden_path("codecs.safetensors")};
};

TEST_F(GoldenCodecs, DecodeEveryE4m3Code) {
  const auto want = golden_.values<Bits>("e4m3fn_to_f32", "F32");
  ASSERT_EQ(want.size(), 256u);
  for (std::size_t code = 0; code < want.size(); ++code) {
    ASSERT_EQ(f32_bits(decode_e4m3(static_cast<std::uint8_t>(code))), want[code]) << code;
  }
}

TEST_F(GoldenCodecs, DecodeEveryE8m0Code) {
  const auto want = golden_.values<Bits>("e8m0fnu_to_f32", "F32");
  ASSERT_EQ(want.size(), 256u);
  for (std::size_t code = 0; code < want.size(); ++code) {
    ASSERT_EQ(f32_bits(decode_e8m0(static_cast<std::uint8_t>(code))), want[code]) << code;
  }
}

TEST_F(GoldenCodecs, EncodeEveryBf16AsE4m3) {
  const auto saturating = golden_.values<std::uint8_t>("bf16_to_e4m3fn_saturating", "U8");
  const auto nonsaturating = golden_.values<std::uint8_t>("bf16_to_e4m3fn_nonsaturating", "U8");
  ASSERT_EQ(saturating.size(), 65536u);
  ASSERT_EQ(nonsaturating.size(), 65536u);
  for (std::size_t i = 0; i < saturating.size(); ++i) {
    ASSERT_EQ(encode_e4m3(bf16(i)), saturating[i]) << i;
    ASSERT_EQ(encode_e4m3_nonsaturating(bf16(i)), nonsaturating[i]) << i;
  }
}

TEST_F(GoldenCodecs, EncodeEveryBf16AsE2m1) {
  const auto want = golden_.values<Bits>("bf16_to_e2m1fn", "F32");
  ASSERT_EQ(want.size(), 65536u);
  for (std::size_t i = 0; i < want.size(); ++i) {
    ASSERT_EQ(f32_bits(decode_e2m1(encode_e2m1(bf16(i)))), want[i]) << i;
  }
}

TEST_F(GoldenCodecs, EncodeF32) {
  const auto x = golden_.values<Bits>("f32", "F32");
  const auto e2m1 = golden_.values<Bits>("f32_to_e2m1fn_value", "F32");
  const auto e4m3 = golden_.values<std::uint8_t>("f32_to_e4m3fn_saturating", "U8");
  ASSERT_GT(x.size(), 100000u);
  ASSERT_EQ(e2m1.size(), x.size());
  ASSERT_EQ(e4m3.size(), x.size());
  for (std::size_t i = 0; i < x.size(); ++i) {
    const float value = f32_from_bits(x[i]);
    ASSERT_EQ(f32_bits(decode_e2m1(encode_e2m1(value))), e2m1[i]) << std::hexfloat << value;
    ASSERT_EQ(encode_e4m3(value), e4m3[i]) << std::hexfloat << value;
  }
}

// Encodes one tensor of nvfp4.safetensors and compares the global scale, every block scale and
// every code byte.
void expect_tensor_matches(const GoldenTensors& golden, const std::string& name) {
  SCOPED_TRACE(name);
  const auto patterns = golden.values<std::uint16_t>(name + ".x", "BF16");
  const auto block_scales = golden.values<std::uint8_t>(name + ".block_scales", "F8_E4M3");
  const auto codes = golden.values<std::uint8_t>(name + ".codes", "U8");
  const auto global = golden.values<Bits>(name + ".global_scale", "F32");
  ASSERT_EQ(golden.shape(name + ".x").back() % kNvfp4QuantBlock, 0);
  ASSERT_EQ(block_scales.size() * kNvfp4QuantBlock, patterns.size());
  ASSERT_EQ(codes.size() * 2, patterns.size());
  ASSERT_EQ(global.size(), 1u);

  std::vector<float> x;
  for (const std::uint16_t pattern : patterns) x.push_back(decode_bf16(pattern));
  const float global_scale =
      nvfp4_global_scale(amax(x.data(), static_cast<std::int64_t>(x.size())));
  ASSERT_EQ(f32_bits(global_scale), global[0]);
  for (std::size_t b = 0; b < block_scales.size(); ++b) {
    std::uint8_t got[kNvfp4BlockBytes];
    ASSERT_EQ(encode_nvfp4_block(&x[b * kNvfp4QuantBlock], global_scale, got), block_scales[b])
        << "quant block " << b;
    for (std::size_t i = 0; i < kNvfp4BlockBytes; ++i) {
      ASSERT_EQ(got[i], codes[b * kNvfp4BlockBytes + i]) << "quant block " << b << " byte " << i;
    }
  }
}

TEST(GoldenNvfp4, EveryTensor) {
  const GoldenTensors golden(golden_path("nvfp4.safetensors"));
  const std::string suffix = ".x";
  int num_tensors = 0;
  for (const std::string& name : golden.names()) {
    if (name.size() < 2 || name.substr(name.size() - 2) != suffix) continue;
    expect_tensor_matches(golden, name.substr(0, name.size() - 2));
    ++num_tensors;
  }
  EXPECT_EQ(num_tensors, 5);
}

}  // namespace
}  // namespace dsv4
