// options.h: a user's choices that change how a model computes, beside its weights.
#pragma once

#include <cstdint>

namespace dsv4 {

// How activations enter quantised linears (docs/numerics.md):
//   kA16  as they are; weights decoded exactly
//   kA8   E4M3 in blocks of 128 into FP8, MXFP4 and foldable NVFP4 weights; the rest as kA16
//   kA4   NVFP4 into NVFP4 experts; all other linears as kA16
//   kAuto kA8, which is exact for the weights it touches
enum class Activations : std::uint8_t { kAuto, kA16, kA8, kA4 };

// What the cache stores of a window or compressed row. With exact rows kFp8 is not possible.
enum class KvFormat : std::uint8_t { kFp8, kBf16, kF32 };

// Bounds of ModelOptions: indices of a step's rows, experts included, stay within 32 bits.
inline constexpr std::int64_t kMaxStepTokens = std::int64_t{1} << 20;
inline constexpr std::int64_t kMaxPageRows = std::int64_t{1} << 20;

struct ModelOptions {
  Activations activations = Activations::kAuto;
  // True: rows and index queries are rounded as in training (part of the released models). False:
  // "exact rows", kept as they are; kv is then kF32 or kBf16.
  bool simulate_rows = true;
  KvFormat kv = KvFormat::kFp8;
  std::int64_t max_step_tokens = 512;  // of all sessions in one step; bounds all scratch memory
  std::int64_t page_rows = 64;         // compressed rows in a page
};

}  // namespace dsv4
