// Packed conversions and decoding in registers against numerics/, for all inputs: every FP32, every
// two BF16, every code, every code under every block scale.
#include <cmath>

#include "cuda/device/apply_test.h"
#include "cuda/device/convert.h"
#include "cuda/device/decode.h"
#include "numerics/bf16.h"
#include "numerics/e2m1.h"
#include "numerics/e4m3.h"
#include "numerics/e8m0.h"
#include "numerics/fp8_block.h"
#include "numerics/mxfp4.h"
#include "numerics/nvfp4.h"

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

std::uint16_t low(std::uint32_t pair) { return static_cast<std::uint16_t>(pair); }
std::uint16_t high(std::uint32_t pair) { return static_cast<std::uint16_t>(pair >> 16); }
DSV4_HOST_DEVICE bool is_nan_bf16(std::uint32_t bits) { return (bits & 0x7FFFu) > 0x7F80u; }

// Of a number that FP32 holds exactly unless it is subnormal there: then FP32 would round before
// BF16 does, whose own subnormals are multiples of 2^-133.
DSV4_HOST_DEVICE std::uint16_t rounded_to_bf16(double x) {
  const double magnitude = fabs(x);
  if (!(magnitude < 0x1p-126)) return encode_bf16(static_cast<float>(x));
  const auto bits = static_cast<std::uint16_t>(rint(magnitude * 0x1p133));
  return static_cast<std::uint16_t>(bits | (copysign(1.0, x) < 0 ? 0x8000 : 0));
}

// Below the device judges with numerics/, which gives the host's bits there (numerics_test.cu).

// An FP32 as first and as second of a pair.
struct PairRoundsAsNumericsDoes {
  __device__ bool operator()(std::uint32_t word) const {
    const float x = __uint_as_float(word);
    const bool is_nan = (word & 0x7FFFFFFFu) > 0x7F800000u;
    const std::uint32_t bf16 = is_nan ? kNanBf16 : encode_bf16(x), other_bf16 = encode_bf16(kOther);
    const std::uint32_t e4m3 = encode_e4m3(x), other_e4m3 = encode_e4m3(kOther);
    return cvt_bf16x2(x, kOther) == (bf16 | other_bf16 << 16) &&
           cvt_bf16x2(kOther, x) == (other_bf16 | bf16 << 16) &&
           cvt_e4m3x2(x, kOther) == (e4m3 | other_e4m3 << 8) &&
           cvt_e4m3x2(kOther, x) == (other_e4m3 | e4m3 << 8);
  }
};

TEST_F(DeviceConvert, PairsOfEveryFp32RoundAsNumericsDoes) {
  expect_of_all_words<PairRoundsAsNumericsDoes>(backend());
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

// Two BF16, multiplied in both halves.
struct ProductIsRoundedOnce {
  __device__ bool operator()(std::uint32_t word) const {
    const std::uint32_t a = word & 0xFFFF, b = word >> 16;
    const std::uint32_t got = mul_bf16x2(word, b | a << 16), low_half = got & 0xFFFF;
    if (got >> 16 != low_half) return false;
    const double product = double{decode_bf16(static_cast<std::uint16_t>(a))} *
                           double{decode_bf16(static_cast<std::uint16_t>(b))};
    return product != product ? is_nan_bf16(low_half) : low_half == rounded_to_bf16(product);
  }
};

TEST_F(DeviceConvert, ProductsOfEveryTwoBf16KeepSubnormals) {
  expect_of_all_words<ProductIsRoundedOnce>(backend());
}

// What decoding in registers makes of an E4M3 code: NaN become +-480.
float e4m3_in_registers(std::uint8_t code) {
  if ((code & 0x7F) == 0x7F) return code == 0x7F ? 480.0f : -480.0f;
  return decode_e4m3(code);
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
      const std::uint32_t pair = got[i].pairs[place / 2];
      ASSERT_EQ(place % 2 == 0 ? low(pair) : high(pair), encode_bf16(e4m3_in_registers(code)))
          << int{code};
    }
  }
}

// A code in the low eight bits, the E8M0 scale of FP8 weights above.
struct DecodeFp8 {
  using Input = std::uint32_t;
  using Output = std::uint32_t;
  __device__ Output operator()(std::uint32_t word) const {
    std::uint32_t pairs[2];
    decode_e4m3x4(word & 0xFF, pairs);
    return mul_bf16x2(pairs[0], decode_e8m0_bf16x2(static_cast<std::uint8_t>(word >> 8)));
  }
};

TEST_F(DeviceDecode, EveryE4m3CodeUnderEveryScaleIsExact) {
  const std::vector<std::uint32_t> in = numbers_to(65536);
  const auto got = apply_on_device<DecodeFp8>(backend(), in);
  for (const std::uint32_t word : in) {
    const auto code = static_cast<std::uint8_t>(word), scale = static_cast<std::uint8_t>(word >> 8);
    const double want = double{e4m3_in_registers(code)} * double{decode_e8m0(scale)};
    if (std::isnan(want)) {
      ASSERT_TRUE(is_nan_bf16(low(got[word]))) << word;
      continue;
    }
    ASSERT_EQ(low(got[word]), rounded_to_bf16(want)) << word;
    const float exact = decode_e4m3_scaled(code, scale);
    if (std::isnormal(exact)) ASSERT_EQ(decode_bf16(low(got[word])), exact) << word;
  }
}

// Four bytes of two E2M1 codes each, different, so that a mix of places shows, and every code in
// every place for some `byte`: the byte, its halves exchanged, the complement of either.
DSV4_HOST_DEVICE std::uint32_t four_bytes(std::uint32_t byte) {
  const std::uint32_t two = byte | (byte >> 4 | (byte & 0xF) << 4) << 8;
  return two | (~two & 0xFFFF) << 16;
}

// A byte of two E2M1 codes in its low eight bits, the block scale above: E4M3 or E8M0.
template <bool kNvfp4>
struct DecodeFp4 {
  using Input = std::uint32_t;
  struct Output {
    std::uint32_t codes[4];
    std::uint32_t scaled[4];
  };
  __device__ Output operator()(std::uint32_t word) const {
    Output out;
    const std::uint32_t scale = word >> 8;
    decode_e2m1x8(four_bytes(word & 0xFF), out.codes);
    std::uint32_t scales[2] = {decode_e8m0_bf16x2(static_cast<std::uint8_t>(scale))};
    if (kNvfp4) decode_e4m3x4(scale | scale << 8, scales);
    for (int i = 0; i < 4; ++i) out.scaled[i] = mul_bf16x2(out.codes[i], scales[0]);
    return out;
  }
};

// want(code, block scale): what both decode to.
template <bool kNvfp4, class Want>
void expect_fp4(CudaBackend& backend, const Want& want_of) {
  const std::vector<std::uint32_t> in = numbers_to(65536);
  const auto got = apply_on_device<DecodeFp4<kNvfp4>>(backend, in);
  for (const std::uint32_t word : in) {
    const auto scale = static_cast<std::uint8_t>(word >> 8);
    for (int i = 0; i < 8; ++i) {
      const auto code = static_cast<std::uint8_t>(four_bytes(word & 0xFF) >> 4 * i & 15);
      const auto half = [i](std::uint32_t pair) { return i % 2 == 0 ? low(pair) : high(pair); };
      ASSERT_EQ(half(got[word].codes[i / 2]), encode_bf16(decode_e2m1(code))) << int{code};
      const float want = want_of(code, scale);
      const std::uint16_t scaled = half(got[word].scaled[i / 2]);
      if (std::isnan(want)) {
        ASSERT_TRUE(is_nan_bf16(scaled)) << word;
      } else {
        ASSERT_EQ(scaled, encode_bf16(want)) << word;
        ASSERT_EQ(decode_bf16(scaled), want) << word << ": not exact";
      }
    }
  }
}

TEST_F(DeviceDecode, EveryE2m1PairUnderEveryNvfp4ScaleIsExact) {
  expect_fp4<true>(backend(), [](std::uint8_t code, std::uint8_t scale) {
    if ((scale & 0x7F) != 0x7F) return decode_nvfp4(code, scale, 1.0f);
    return decode_e2m1(code) * e4m3_in_registers(scale);
  });
}

TEST_F(DeviceDecode, EveryE2m1PairUnderEveryMxfp4ScaleIsExact) {
  expect_fp4<false>(
      backend(), [](std::uint8_t code, std::uint8_t scale) { return decode_mxfp4(code, scale); });
}

}  // namespace
}  // namespace dsv4::cuda
