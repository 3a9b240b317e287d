// Packed conversions and decoding in registers against numerics/, for all inputs: every code, every
// pair of a code and a scale, every BF16, and FP32 patterns all over the range.
#include <ios>

#include "cuda/device/apply_test.h"
#include "cuda/device/convert.h"
#include "cuda/device/decode.h"
#include "numerics/bf16.h"
#include "numerics/e2m1.h"
#include "numerics/e4m3.h"
#include "numerics/e8m0.h"
#include "numerics/mxfp4.h"
#include "testing/codec_oracle.h"

namespace dsv4::cuda {
namespace {

using DeviceConvert = CudaTest;
using DeviceDecode = CudaTest;

constexpr float kOther = 2.71875f;  // stands beside the value that is tried, exact in BF16
constexpr std::uint16_t kNanBf16 = 0x7FFF;

std::vector<std::uint32_t> numbers_to(std::uint32_t end) {
  std::vector<std::uint32_t> numbers(end);
  for (std::uint32_t i = 0; i < end; ++i) numbers[i] = i;
  return numbers;
}

// The hard patterns, then 2^22 that an odd stride spreads over all of FP32.
std::vector<std::uint32_t> f32_patterns() {
  std::vector<std::uint32_t> patterns = hard_f32_patterns();
  for (std::uint32_t i = 0; i < (1u << 22); ++i) patterns.push_back(i * 2654435761u);
  return patterns;
}

std::uint16_t low(std::uint32_t pair) { return static_cast<std::uint16_t>(pair); }
std::uint16_t high(std::uint32_t pair) { return static_cast<std::uint16_t>(pair >> 16); }
bool is_nan_f32(std::uint32_t bits) { return (bits & 0x7FFFFFFFu) > 0x7F800000u; }
bool is_nan_bf16(std::uint16_t bits) { return (bits & 0x7FFFu) > 0x7F80u; }
std::uint16_t bf16_of(float x) { return encode_bf16(x); }

// Each value first and second of a pair.
struct ConvertPairs {
  using Input = std::uint32_t;
  struct Output {
    std::uint32_t bf16[2];
    std::uint16_t e4m3[2];
  };
  __device__ Output operator()(std::uint32_t bits) const {
    const float x = __uint_as_float(bits);
    return {{cvt_bf16x2(x, kOther), cvt_bf16x2(kOther, x)},
            {cvt_e4m3x2(x, kOther), cvt_e4m3x2(kOther, x)}};
  }
};

TEST_F(DeviceConvert, PairsRoundAsNumericsDoes) {
  const std::vector<std::uint32_t> in = f32_patterns();
  const auto got = apply_on_device<ConvertPairs>(backend(), in);
  const std::uint16_t other_bf16 = bf16_of(kOther);
  const std::uint8_t other_e4m3 = encode_e4m3(kOther);
  for (std::size_t i = 0; i < in.size(); ++i) {
    const float x = f32_from_bits(in[i]);
    const std::uint16_t want_bf16 = is_nan_f32(in[i]) ? kNanBf16 : bf16_of(x);
    const std::uint8_t want_e4m3 = encode_e4m3(x);
    ASSERT_EQ(low(got[i].bf16[0]), want_bf16) << std::hexfloat << x;
    ASSERT_EQ(high(got[i].bf16[0]), other_bf16);
    ASSERT_EQ(high(got[i].bf16[1]), want_bf16) << std::hexfloat << x;
    ASSERT_EQ(got[i].e4m3[0], want_e4m3 | other_e4m3 << 8) << std::hexfloat << x;
    ASSERT_EQ(got[i].e4m3[1], other_e4m3 | want_e4m3 << 8) << std::hexfloat << x;
  }
}

struct SplitBf16 {
  using Input = std::uint32_t;
  using Output = std::uint64_t;
  __device__ Output operator()(std::uint32_t bits) const {
    const std::uint32_t pair = bits | ~bits << 16;
    return __float_as_uint(first_of_bf16x2(pair)) |
           static_cast<std::uint64_t>(__float_as_uint(second_of_bf16x2(pair))) << 32;
  }
};

TEST_F(DeviceConvert, BothHalvesOfEveryBf16PairAreFound) {
  const std::vector<std::uint32_t> in = numbers_to(65536);
  const auto got = apply_on_device<SplitBf16>(backend(), in);
  for (const std::uint32_t bits : in) {
    ASSERT_EQ(static_cast<std::uint32_t>(got[bits]), bits << 16);
    ASSERT_EQ(static_cast<std::uint32_t>(got[bits] >> 32), ~bits << 16);
  }
}

struct E4m3ToF16 {
  using Input = std::uint32_t;
  using Output = std::uint32_t;
  __device__ Output operator()(std::uint32_t codes) const {
    const std::uint32_t pair = cvt_f16x2_e4m3x2(static_cast<std::uint16_t>(codes));
    return pair;
  }
};

// FP16 to FP32 by its definition.
float decode_f16(std::uint16_t bits) {
  const int exponent = bits >> 10 & 31;
  const auto mantissa = static_cast<float>(bits & 1023);
  const float magnitude =
      exponent == 0 ? std::ldexp(mantissa, -24) : std::ldexp(1024 + mantissa, exponent - 25);
  return (bits & 0x8000) != 0 ? -magnitude : magnitude;
}

TEST_F(DeviceConvert, EveryPairOfE4m3IsExactInFp16) {
  const std::vector<std::uint32_t> in = numbers_to(65536);
  const auto got = apply_on_device<E4m3ToF16>(backend(), in);
  const auto expect_code = [](std::uint16_t f16, std::uint32_t code) {
    if ((code & 0x7F) == 0x7F) {
      EXPECT_EQ(f16, 0x7FFF) << code;
    } else {
      EXPECT_EQ(f32_bits(decode_f16(f16)), f32_bits(decode_e4m3(static_cast<std::uint8_t>(code))))
          << code;
    }
  };
  for (const std::uint32_t codes : in) {
    expect_code(low(got[codes]), codes & 0xFF);
    expect_code(high(got[codes]), codes >> 8);
  }
}

// Every BF16 times factors that decoding uses, subnormal ones and one that rounds.
struct MultiplyBf16 {
  using Input = std::uint32_t;
  using Output = std::uint32_t;  // of the factors, xor of nothing: one input each
  __device__ Output operator()(std::uint32_t in) const {
    constexpr std::uint16_t kFactors[] = {0x7B80, 0x7E80, 0x3F80, 0x0040, 0x0001, 0xBFAB};
    const std::uint32_t factor = kFactors[in >> 16];
    return mul_bf16x2(in << 16 | (in & 0xFFFF), factor << 16 | factor);
  }
};

TEST_F(DeviceConvert, ProductsOfEveryBf16KeepSubnormals) {
  constexpr std::uint16_t kFactors[] = {0x7B80, 0x7E80, 0x3F80, 0x0040, 0x0001, 0xBFAB};
  const std::vector<std::uint32_t> in = numbers_to(6 * 65536);
  const auto got = apply_on_device<MultiplyBf16>(backend(), in);
  for (const std::uint32_t i : in) {
    const auto bits = static_cast<std::uint16_t>(i);
    // A product of two BF16 has 16 bits and so is exact in FP32, but for subnormals of FP32; double
    // holds those too, and is rounded once.
    const double product = double{decode_bf16(bits)} * double{decode_bf16(kFactors[i >> 16])};
    ASSERT_EQ(low(got[i]), high(got[i]));
    if (std::isnan(product)) {
      ASSERT_TRUE(is_nan_bf16(low(got[i]))) << i;
      continue;
    }
    std::uint16_t want = bf16_of(static_cast<float>(product));
    // Where FP32 would round before BF16 does: quanta of BF16's subnormals are 2^-133.
    if (std::fabs(product) < 0x1p-126) {
      const double quanta = std::nearbyint(std::fabs(product) * 0x1p133);
      want = static_cast<std::uint16_t>(static_cast<int>(quanta) |
                                        (std::signbit(product) ? 0x8000 : 0));
    }
    ASSERT_EQ(low(got[i]), want) << i;
  }
}

struct DecodeE4m3 {
  using Input = std::uint32_t;
  struct Output {
    std::uint32_t pairs[2];
  };
  __device__ Output operator()(std::uint32_t codes) const {
    Output out;
    decode_e4m3x4(codes, out.pairs);
    return out;
  }
};

TEST_F(DeviceDecode, EveryE4m3CodeInEveryPlaceIsExact) {
  std::vector<std::uint32_t> in;
  for (std::uint32_t code = 0; code < 256; ++code) {
    // The other bytes differ from it in all bits, so that a mix of places shows.
    const std::uint32_t other = ~code & 0xFF;
    for (int place = 0; place < 4; ++place) {
      in.push_back((other * 0x01010101u & ~(0xFFu << 8 * place)) | code << 8 * place);
    }
  }
  const auto got = apply_on_device<DecodeE4m3>(backend(), in);
  for (std::size_t i = 0; i < in.size(); ++i) {
    for (int place = 0; place < 4; ++place) {
      const auto code = static_cast<std::uint8_t>(in[i] >> 8 * place);
      float want = decode_e4m3(code);
      if ((code & 0x7F) == 0x7F) want = code == 0x7F ? 480.0f : -480.0f;
      const std::uint32_t pair = got[i].pairs[place / 2];
      ASSERT_EQ(place % 2 == 0 ? low(pair) : high(pair), bf16_of(want)) << int{code};
    }
  }
}

// A byte of two E2M1 codes in its low eight bits, an E8M0 scale above.
struct DecodeMxfp4 {
  using Input = std::uint32_t;
  struct Output {
    std::uint32_t codes[4];
    std::uint32_t scaled[4];
  };
  __device__ Output operator()(std::uint32_t word) const {
    Output out;
    // Byte 3 holds the pair, bytes 0 to 2 others, so that a mix of places shows.
    const std::uint32_t byte = word & 0xFF;
    decode_e2m1x8(byte << 24 | (~byte & 0xFF) << 16 | 0x5A00u | byte, out.codes);
    const std::uint32_t scale = decode_e8m0_bf16x2(static_cast<std::uint8_t>(word >> 8));
    for (int i = 0; i < 4; ++i) out.scaled[i] = mul_bf16x2(out.codes[i], scale);
    return out;
  }
};

TEST_F(DeviceDecode, EveryE2m1PairAndEveryMxfp4ScaleAreExact) {
  const std::vector<std::uint32_t> in = numbers_to(65536);
  const auto got = apply_on_device<DecodeMxfp4>(backend(), in);
  for (const std::uint32_t word : in) {
    const std::uint8_t scale = static_cast<std::uint8_t>(word >> 8);
    const std::uint32_t byte = word & 0xFF;
    const std::uint32_t bytes[4] = {byte, 0x5A, ~byte & 0xFF, byte};
    for (int i = 0; i < 8; ++i) {
      const auto code = static_cast<std::uint8_t>(bytes[i / 2] >> 4 * (i % 2) & 15);
      const auto half = [i](std::uint32_t pair) { return i % 2 == 0 ? low(pair) : high(pair); };
      ASSERT_EQ(half(got[word].codes[i / 2]), bf16_of(decode_e2m1(code))) << int{code};
      const float want = decode_mxfp4(code, scale);
      const std::uint16_t scaled = half(got[word].scaled[i / 2]);
      if (std::isnan(want)) {
        ASSERT_TRUE(is_nan_bf16(scaled)) << word;
      } else {
        ASSERT_EQ(scaled, bf16_of(want)) << word;
        ASSERT_EQ(decode_bf16(scaled), want) << word << ": not exact";
      }
    }
  }
}

}  // namespace
}  // namespace dsv4::cuda
