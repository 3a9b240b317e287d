// encode_tiles_avx3-inl.h: tiles of sixteen NVFP4 blocks of BF16 with AVX-512. Two blocks, or two
// candidates of one, fill a register; of seven boundaries three are looked up and compared.
//
// Rows: encode_rows.cc, which includes this for its AVX-512 target only.
#pragma once

#include <cstring>

#include "cpu/codes-inl.h"
#include "cpu/encode_rows.h"
#include "numerics/nvfp4.h"

HWY_BEFORE_NAMESPACE();
namespace dsv4::cpu {
namespace HWY_NAMESPACE {

// Largest magnitudes of the blocks of x [16 * 16] as FP32 bits; lane 4 l + k holds block
// 8 (l / 2) + l % 2 + 2 k.
HWY_INLINE __m512i tile_amaxes(const std::uint16_t* x) {
  __m512i pair[8];
  for (int i = 0; i < 8; ++i) {
    pair[i] = _mm512_and_si512(_mm512_loadu_si512(x + 32 * i), _mm512_set1_epi16(0x7FFF));
  }
  __m512i quarter[4];  // of each block, in 64 bits
  for (int i = 0; i < 4; ++i) {
    const __m512i a = pair[2 * i], b = pair[2 * i + 1];
    quarter[i] = _mm512_max_epu16(_mm512_unpacklo_epi64(a, b), _mm512_unpackhi_epi64(a, b));
  }
  __m512i eighth[2];
  for (int i = 0; i < 2; ++i) {
    const __m512 a = _mm512_castsi512_ps(quarter[2 * i]);
    const __m512 b = _mm512_castsi512_ps(quarter[2 * i + 1]);
    eighth[i] = _mm512_max_epu16(_mm512_castps_si512(_mm512_shuffle_ps(a, b, 0x88)),
                                 _mm512_castps_si512(_mm512_shuffle_ps(a, b, 0xDD)));
  }
  const __m512i two = _mm512_max_epu16(_mm512_shuffle_i64x2(eighth[0], eighth[1], 0x88),
                                       _mm512_shuffle_i64x2(eighth[0], eighth[1], 0xDD));
  const __m512i one = _mm512_max_epu16(two, _mm512_slli_epi32(two, 16));
  return _mm512_and_si512(one, _mm512_set1_epi32(static_cast<int>(0xFFFF0000u)));
}

// Codes of two blocks, one in 16 bits, from the bits of their values; `last` of either block.
HWY_INLINE __m512i codes_of(__m512i bits, const std::uint16_t* last_a,
                            const std::uint16_t* last_b) {
  const __m512i magnitude = _mm512_and_si512(bits, _mm512_set1_epi16(0x7FFF));
  const __m512i last = _mm512_castsi256_si512(_mm256_inserti128_si256(
      _mm256_castsi128_si256(_mm_loadu_si128(reinterpret_cast<const __m128i*>(last_a))),
      _mm_loadu_si128(reinterpret_cast<const __m128i*>(last_b)), 1));
  const __m512i zero_code = _mm512_inserti64x4(_mm512_setzero_si512(), _mm256_set1_epi16(8), 1);
  const auto passed = [&](__m512i idx) {
    return _mm512_cmpgt_epu16_mask(magnitude, _mm512_permutexvar_epi16(idx, last));
  };
  __m512i code = zero_code;
  code = _mm512_mask_add_epi16(code, passed(_mm512_add_epi16(code, _mm512_set1_epi16(3))), code,
                               _mm512_set1_epi16(4));
  code = _mm512_mask_add_epi16(code, passed(_mm512_add_epi16(code, _mm512_set1_epi16(1))), code,
                               _mm512_set1_epi16(2));
  code = _mm512_mask_add_epi16(code, passed(code), code, _mm512_set1_epi16(1));
  // Bits 0 to 2 of the code, bit 3 from the sign.
  return _mm512_ternarylogic_epi32(_mm512_set1_epi16(7), code, _mm512_srli_epi16(bits, 12), 0xCA);
}

// Codes of x [32], two blocks, to [16] bytes.
HWY_INLINE void encode_codes(const std::uint16_t* x, const std::uint16_t* last_a,
                             const std::uint16_t* last_b, std::uint8_t* codes) {
  const __m512i code = codes_of(_mm512_loadu_si512(x), last_a, last_b);
  const __m512i packed = _mm512_or_si512(code, _mm512_srli_epi32(code, 12));
  _mm_storeu_si128(reinterpret_cast<__m128i*>(codes), _mm512_cvtepi32_epi8(packed));
}

// Block scales of sixteen blocks, in their order, from the lanes of tile_amaxes.
HWY_INLINE void store_scales(IntVec scales, std::uint8_t* block_scales) {
  alignas(16) static constexpr std::uint8_t kLaneOfBlock[16] = {0, 4,  1, 5,  2,  6,  3,  7,
                                                                8, 12, 9, 13, 10, 14, 11, 15};
  const __m128i order = _mm_load_si128(reinterpret_cast<const __m128i*>(kLaneOfBlock));
  _mm_storeu_si128(reinterpret_cast<__m128i*>(block_scales),
                   _mm_shuffle_epi8(_mm512_cvtepi32_epi8(scales.raw), order));
}

HWY_INLINE bool is_finite_tile(__m512i amaxes) {
  return _mm512_cmpge_epu32_mask(amaxes, _mm512_set1_epi32(kF32InfinityBits)) == 0;
}

// Block scales of x [16 * 16]; false, with nothing written, if it is not finite.
HWY_INLINE bool encode_tile_scales(const std::uint16_t* x, const Nvfp4Boundaries& boundaries,
                                   std::uint8_t* block_scales) {
  const __m512i amaxes = tile_amaxes(x);
  if (!is_finite_tile(amaxes)) return false;
  store_scales(scale_codes(LaneVec{_mm512_castsi512_ps(amaxes)}, boundaries.global_scale),
               block_scales);
  return true;
}

// Rare: blocks of zeros, or near them, have codes without a sign.
HWY_INLINE void clear_zero_blocks(const std::uint8_t* block_scales,
                                  const Nvfp4Boundaries& boundaries, std::uint8_t* codes) {
  const __m128i scales = _mm_loadu_si128(reinterpret_cast<const __m128i*>(block_scales));
  unsigned zero =
      _mm_cmplt_epu8_mask(scales, _mm_set1_epi8(static_cast<char>(boundaries.first_scale)));
  for (; zero != 0; zero &= zero - 1) {
    std::memset(codes + __builtin_ctz(zero) * kNvfp4BlockBytes, 0, kNvfp4BlockBytes);
  }
}

HWY_INLINE void encode_tile_codes(const std::uint16_t* x, const std::uint8_t* block_scales,
                                  const Nvfp4Boundaries& boundaries, std::uint8_t* codes) {
  for (int b = 0; b < kTileBlocks; b += 2) {
    encode_codes(x + b * kNvfp4QuantBlock, boundaries.last[block_scales[b]],
                 boundaries.last[block_scales[b + 1]], codes + b * kNvfp4BlockBytes);
  }
  clear_zero_blocks(block_scales, boundaries, codes);
}

// Squares of the errors of two candidates, each added up as nvfp4_block_error does: 1 if the
// second is smaller, else 0.
HWY_INLINE unsigned second_is_better(__m512 x, __m512 decoded_a, __m512 decoded_b) {
  const auto half_sums = [](__m512 values, __m512 decoded) {
    const auto square = [](__m256 v, __m256 d) {
      const __m512d error = _mm512_sub_pd(_mm512_cvtps_pd(v), _mm512_cvtps_pd(d));
      return _mm512_mul_pd(error, error);
    };
    return _mm512_add_pd(
        square(_mm512_castps512_ps256(values), _mm512_castps512_ps256(decoded)),
        square(_mm512_extractf32x8_ps(values, 1), _mm512_extractf32x8_ps(decoded, 1)));
  };
  const __m512d a = half_sums(x, decoded_a), b = half_sums(x, decoded_b);
  // Lanes 0 to 3 are a's, 4 to 7 b's.
  const __m512d four =
      _mm512_add_pd(_mm512_shuffle_f64x2(a, b, 0x44), _mm512_shuffle_f64x2(a, b, 0xEE));
  const __m512d two = _mm512_add_pd(four, _mm512_permutex_pd(four, 0x4E));
  const __m512d one = _mm512_add_pd(two, _mm512_permute_pd(two, 0x55));
  return _mm_cmp_sd_mask(_mm512_castpd512_pd128(_mm512_shuffle_f64x2(one, one, 0xEE)),
                         _mm512_castpd512_pd128(one), _CMP_LT_OQ);
}

// Codes of x [16] under the better of its block scales `to_six` and `to_four`, which is returned.
HWY_INLINE std::uint8_t encode_better(const std::uint16_t* x, std::uint8_t to_six,
                                      std::uint8_t to_four, const Nvfp4Boundaries& boundaries,
                                      const Nvfp4Values& values, std::uint8_t* codes) {
  const __m256i bits = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(x));
  const __m512i both =
      codes_of(_mm512_broadcast_i64x4(bits), boundaries.last[to_six], boundaries.last[to_four]);
  const __m256i candidates[2] = {_mm512_castsi512_si256(both), _mm512_extracti64x4_epi64(both, 1)};
  const auto decoded = [&](int i, std::uint8_t scale) {
    return _mm512_permutexvar_ps(_mm512_cvtepu16_epi32(candidates[i]),
                                 _mm512_load_ps(values.of[scale]));
  };
  const __m512 exact = _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(bits), 16));
  const bool four = second_is_better(exact, decoded(0, to_six), decoded(1, to_four));
  const __m256i code =
      _mm256_mask_mov_epi64(candidates[0], static_cast<__mmask8>(four ? 0xF : 0), candidates[1]);
  const __m256i packed = _mm256_or_si256(code, _mm256_srli_epi32(code, 12));
  _mm_storel_epi64(reinterpret_cast<__m128i*>(codes), _mm256_cvtepi32_epi8(packed));
  return static_cast<std::uint8_t>(to_six + four * (to_four - to_six));
}

// Sums of sixteen vectors of sixteen; lane i is vector i's.
HWY_INLINE __m512 sums_of(const __m512* v) {
  __m512 eight[8], four[4], two[2];
  for (int i = 0; i < 8; ++i) {
    eight[i] = _mm512_add_ps(_mm512_unpacklo_ps(v[2 * i], v[2 * i + 1]),
                             _mm512_unpackhi_ps(v[2 * i], v[2 * i + 1]));
  }
  for (int i = 0; i < 4; ++i) {
    const __m512d a = _mm512_castps_pd(eight[2 * i]), b = _mm512_castps_pd(eight[2 * i + 1]);
    four[i] = _mm512_add_ps(_mm512_castpd_ps(_mm512_unpacklo_pd(a, b)),
                            _mm512_castpd_ps(_mm512_unpackhi_pd(a, b)));
  }
  const auto add_quarters = [](__m512 a, __m512 b) {
    return _mm512_add_ps(_mm512_shuffle_f32x4(a, b, 0x88), _mm512_shuffle_f32x4(a, b, 0xDD));
  };
  for (int i = 0; i < 2; ++i) two[i] = add_quarters(four[2 * i], four[2 * i + 1]);
  return add_quarters(two[0], two[1]);
}

// Of sixteen blocks, those whose second candidate has the smaller squared error, and those of which
// that is sure although the errors were computed in FP32.
//
// A difference, its square and four additions of terms above 0 are off by at most 7.01 * 2^-24 of
// a sum, and by 2^-146 where squares underflow; nvfp4_block_error's FP64 by less than 2^-49. So two
// sums that are farther apart than 2^-19 of both together are in the right order, if they are not
// tiny. Infinite sums and NaN compare as not sure.
struct Winners {
  __mmask16 second, sure;
};
HWY_INLINE Winners smaller_errors(const __m512* first_squares, const __m512* second_squares) {
  const __m512 first = sums_of(first_squares), second = sums_of(second_squares);
  const __m512 both = _mm512_add_ps(first, second);
  const __m512 apart = _mm512_abs_ps(_mm512_sub_ps(first, second));
  const __mmask16 is_apart =
      _mm512_cmp_ps_mask(apart, _mm512_mul_ps(both, _mm512_set1_ps(0x1p-19f)), _CMP_GT_OQ);
  const __mmask16 is_large = _mm512_cmp_ps_mask(both, _mm512_set1_ps(0x1p-100f), _CMP_GT_OQ);
  return {_mm512_cmp_ps_mask(second, first, _CMP_LT_OQ),
          static_cast<__mmask16>(is_apart & is_large)};
}

// Codes of x [16] under both block scales, packed, and the squares of their errors in FP32.
HWY_INLINE void encode_both(const std::uint16_t* x, std::uint8_t to_six, std::uint8_t to_four,
                            const Nvfp4Boundaries& boundaries, const Nvfp4Values& values,
                            std::uint8_t* codes_to_six, std::uint8_t* codes_to_four,
                            __m512* squares_to_six, __m512* squares_to_four) {
  const __m256i bits = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(x));
  const __m512i both =
      codes_of(_mm512_broadcast_i64x4(bits), boundaries.last[to_six], boundaries.last[to_four]);
  const __m128i packed = _mm512_cvtepi32_epi8(_mm512_or_si512(both, _mm512_srli_epi32(both, 12)));
  _mm_storel_epi64(reinterpret_cast<__m128i*>(codes_to_six), packed);
  _mm_storeh_pd(reinterpret_cast<double*>(codes_to_four), _mm_castsi128_pd(packed));
  const __m512 exact = _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(bits), 16));
  const auto square = [&](__m256i codes, std::uint8_t scale) {
    const __m512 decoded =
        _mm512_permutexvar_ps(_mm512_cvtepu16_epi32(codes), _mm512_load_ps(values.of[scale]));
    const __m512 error = _mm512_sub_ps(exact, decoded);
    return _mm512_mul_ps(error, error);
  };
  *squares_to_six = square(_mm512_castsi512_si256(both), to_six);
  *squares_to_four = square(_mm512_extracti64x4_epi64(both, 1), to_four);
}

// The same for four over six, with the codes of x [16 * 16].
HWY_INLINE bool encode_tile_four_over_six(const std::uint16_t* x, const Nvfp4Boundaries& boundaries,
                                          const Nvfp4Values& values, std::uint8_t* codes,
                                          std::uint8_t* block_scales) {
  const __m512i amaxes = tile_amaxes(x);
  if (!is_finite_tile(amaxes)) return false;
  const auto ratio = hn::Div(LaneVec{_mm512_castsi512_ps(amaxes)},
                             hn::Set(LaneTag(), kE2m1Max * boundaries.global_scale));
  alignas(16) std::uint8_t to_six[kTileBlocks], to_four[kTileBlocks];
  store_scales(e4m3_codes(ratio), to_six);
  store_scales(e4m3_codes(hn::Mul(ratio, hn::Set(LaneTag(), 1.5f))), to_four);
  constexpr int kTileBytes = kTileBlocks * kNvfp4BlockBytes;
  alignas(64) std::uint8_t codes_to_six[kTileBytes], codes_to_four[kTileBytes];
  __m512 squares_to_six[kTileBlocks], squares_to_four[kTileBlocks];
  for (int b = 0; b < kTileBlocks; ++b) {
    encode_both(x + b * kNvfp4QuantBlock, to_six[b], to_four[b], boundaries, values,
                codes_to_six + b * kNvfp4BlockBytes, codes_to_four + b * kNvfp4BlockBytes,
                squares_to_six + b, squares_to_four + b);
  }
  const Winners winners = smaller_errors(squares_to_six, squares_to_four);
  for (int i = 0; i < kTileBytes / 64; ++i) {
    const __m512i better = _mm512_mask_mov_epi64(_mm512_load_si512(codes_to_six + 64 * i),
                                                 static_cast<__mmask8>(winners.second >> 8 * i),
                                                 _mm512_load_si512(codes_to_four + 64 * i));
    _mm512_storeu_si512(codes + 64 * i, better);
  }
  const __m128i six = _mm_load_si128(reinterpret_cast<const __m128i*>(to_six));
  const __m128i four = _mm_load_si128(reinterpret_cast<const __m128i*>(to_four));
  _mm_storeu_si128(reinterpret_cast<__m128i*>(block_scales),
                   _mm_mask_mov_epi8(six, winners.second, four));
  // Of one scale, at E4M3's ends, both candidates are the same.
  const unsigned decided = unsigned{winners.sure} | unsigned{_mm_cmpeq_epi8_mask(six, four)};
  for (unsigned open = ~decided & 0xFFFF; open != 0; open &= open - 1) {
    const int b = __builtin_ctz(open);
    block_scales[b] = encode_better(x + b * kNvfp4QuantBlock, to_six[b], to_four[b], boundaries,
                                    values, codes + b * kNvfp4BlockBytes);
  }
  clear_zero_blocks(block_scales, boundaries, codes);
  return true;
}

}  // namespace HWY_NAMESPACE
}  // namespace dsv4::cpu
HWY_AFTER_NAMESPACE();
