// fill.h: random inputs made on the device, in gigabytes a millisecond. No CUDA header. For
// benchmarks only.
#pragma once

#include <cstdint>

namespace dsv4::cuda {

// About normal, mean 0 and deviation 1; the same values for the same seed. Done when they return.
// Throw Error.
void fill_normal_f32(void* to, std::int64_t count, std::uint64_t seed);
void fill_normal_bf16(void* to, std::int64_t count, std::uint64_t seed);
void fill_normal_e4m3(void* to, std::int64_t count, std::uint64_t seed);
// Uniform bytes, each `and_mask`ed and with the bits of `or_mask`: codes and scales of quantised
// weights.
void fill_random_bytes(void* to, std::int64_t bytes, std::uint64_t seed, std::uint8_t and_mask,
                       std::uint8_t or_mask = 0);

}  // namespace dsv4::cuda
