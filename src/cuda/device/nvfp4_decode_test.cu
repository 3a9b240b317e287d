// The decode of repacked FP4 weights on the GPU against numerics/: every code in every place of a
// word under every block scale.
#include <cmath>

#include "cuda/device/apply_test.h"
#include "cuda/device/matrix_load.h"
#include "cuda/device/nvfp4_decode.h"
#include "numerics/bf16.h"
#include "numerics/e2m1.h"
#include "numerics/e4m3.h"

namespace dsv4::cuda {
namespace {

using Nvfp4Decode = CudaTest;

struct PackedStep {
  std::uint32_t word;
  std::uint32_t row_g, row_g8;  // block scales as they are stored
};
struct Fragments {
  std::uint32_t a[4];
};

template <int kQuantBlock, int kStep>
struct DecodeStep {
  using Input = PackedStep;
  using Output = Fragments;
  __device__ Output operator()(const Input& in) const {
    // Each thread its own, from where the GEMMs load them.
    __shared__ alignas(8) std::uint32_t stored[kApplyThreads][2];
    stored[threadIdx.x][0] = in.row_g;
    stored[threadIdx.x][1] = in.row_g8;
    __threadfence_block();  // the load's text does not say that it reads memory
    FragmentScales<kQuantBlock> scales;
    scales.load(shared_address(stored[threadIdx.x]));
    Fragments out;
    decode_fragments(in.word, scales.template bf16x2<kStep>(), E2m1Multipliers(), out.a);
    return out;
  }
};

// The word with `code` at half `h` of pair `pair` and the others' complement everywhere else.
std::uint32_t word_with(std::uint32_t code, int pair, int h) {
  std::uint32_t word = 0;
  for (int p = 0; p < 4; ++p) {
    for (int half = 0; half < 2; ++half) {
      word |= place_e2m1(p == pair && half == h ? code : ~code & 0xF, p) << 16 * half;
    }
  }
  return word;
}

// Decoded value at half `h` of a[pair].
float value_of(const Fragments& fragments, int pair, int h) {
  return decode_bf16(static_cast<std::uint16_t>(fragments.a[pair] >> 16 * h));
}

// Rows g and g + 8 take their own scale: a[0] and a[2] the first, a[1] and a[3] the second.
template <int kStep>
void expect_nvfp4_step(CudaBackend& backend) {
  std::vector<PackedStep> in;
  for (std::uint32_t scale = 1; scale < 0x7F; ++scale) {
    for (std::uint32_t code = 0; code < 16; ++code) {
      for (int place = 0; place < 8; ++place) {
        // The scale under test where the step is, its neighbours all ones; row g + 8 has another.
        const auto stored = [](std::uint32_t of_step) {
          return rotate_left(e5m3_scale(of_step) << 8 * kStep | ~(0xFFu << 8 * kStep), 4);
        };
        in.push_back({word_with(code, place / 2, place % 2), stored(scale), stored(0x7F - scale)});
      }
    }
  }
  const std::vector<Fragments> out = apply_on_device<DecodeStep<16, kStep>>(backend, in);
  std::size_t i = 0;
  for (std::uint32_t scale = 1; scale < 0x7F; ++scale) {
    for (std::uint32_t code = 0; code < 16; ++code) {
      for (int place = 0; place < 8; ++place, ++i) {
        const bool row_g8 = place / 2 % 2 == 1;
        const float want = decode_e2m1(static_cast<std::uint8_t>(code)) *
                           decode_e4m3(static_cast<std::uint8_t>(row_g8 ? 0x7F - scale : scale)) *
                           0x1p-7f;
        ASSERT_EQ(value_of(out[i], place / 2, place % 2), want)
            << "scale " << scale << " code " << code << " place " << place;
      }
    }
  }
}

TEST_F(Nvfp4Decode, EveryCodeScaleAndPlace) {
  expect_nvfp4_step<0>(backend());
  expect_nvfp4_step<1>(backend());
  expect_nvfp4_step<2>(backend());
  expect_nvfp4_step<3>(backend());
}

template <int kStep>
void expect_mxfp4_step(CudaBackend& backend) {
  std::vector<PackedStep> in;
  for (std::uint32_t scale = 0; scale < 0xFF; ++scale) {
    for (std::uint32_t code = 0; code < 16; ++code) {
      for (int place = 0; place < 8; ++place) {
        const int row = place / 2 % 2, block = kStep / 2;
        const int byte = 2 * row + block;
        const std::uint32_t stored = scale << 8 * byte | ~(0xFFu << 8 * byte);
        in.push_back({word_with(code, place / 2, place % 2), rotate_left(stored, 7), 0});
      }
    }
  }
  const std::vector<Fragments> out = apply_on_device<DecodeStep<32, kStep>>(backend, in);
  std::size_t i = 0;
  for (std::uint32_t scale = 0; scale < 0xFF; ++scale) {
    for (std::uint32_t code = 0; code < 16; ++code) {
      for (int place = 0; place < 8; ++place, ++i) {
        // Below 2^-133 a BF16 has no bits left; 122 is the smallest scale whose products all fit.
        const double want = std::ldexp(decode_e2m1(static_cast<std::uint8_t>(code)),
                                       static_cast<int>(scale) - 127 - 126);
        const float got = value_of(out[i], place / 2, place % 2);
        if (scale >= 122) {
          ASSERT_EQ(got, want) << "scale " << scale << " code " << code << " place " << place;
        } else {
          ASSERT_LE(std::fabs(got - want), 0x1p-134) << "scale " << scale << " code " << code;
        }
      }
    }
  }
}

TEST_F(Nvfp4Decode, Mxfp4EveryCodeScaleAndPlace) {
  expect_mxfp4_step<0>(backend());
  expect_mxfp4_step<1>(backend());
  expect_mxfp4_step<2>(backend());
  expect_mxfp4_step<3>(backend());
}

}  // namespace
}  // namespace dsv4::cuda
