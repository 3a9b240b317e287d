#include "cuda/bench/fill.h"
#include "cuda/errors.h"
#include "cuda/launch.h"
#include "numerics/bf16.h"
#include "numerics/e4m3.h"

namespace dsv4::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int kCtas = 132 * 16;

// SplitMix64: a good hash of a counter, so that every element is made by itself.
__device__ std::uint64_t hash(std::uint64_t seed, std::int64_t idx) {
  std::uint64_t x = seed * 0x9E3779B97F4A7C15u + static_cast<std::uint64_t>(idx + 1);
  x *= 0x9E3779B97F4A7C15u;
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9u;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EBu;
  return x ^ (x >> 31);
}

// The sum of four uniform values has nearly the tails of a normal one.
__device__ float normal(std::uint64_t seed, std::int64_t idx) {
  const std::uint64_t bits = hash(seed, idx);
  float sum = -2.0f;
  for (int i = 0; i < 4; ++i) sum += static_cast<float>((bits >> (16 * i)) & 0xFFFF) * 0x1p-16f;
  return sum * 1.7320508f;
}

struct NormalF32 {
  std::uint64_t seed;
  __device__ float operator()(std::int64_t i) const { return normal(seed, i); }
};
struct NormalBf16 {
  std::uint64_t seed;
  __device__ std::uint16_t operator()(std::int64_t i) const { return encode_bf16(normal(seed, i)); }
};
struct NormalE4m3 {
  std::uint64_t seed;
  __device__ std::uint8_t operator()(std::int64_t i) const { return encode_e4m3(normal(seed, i)); }
};
struct RandomByte {
  std::uint64_t seed;
  std::uint8_t and_mask, or_mask;
  __device__ std::uint8_t operator()(std::int64_t i) const {
    return static_cast<std::uint8_t>((hash(seed, i) & and_mask) | or_mask);
  }
};

template <class T, class Make>
__global__ void fill(T* to, std::int64_t count, Make make) {
  const std::int64_t step = static_cast<std::int64_t>(gridDim.x) * blockDim.x;
  for (std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x; i < count;
       i += step) {
    to[i] = make(i);
  }
}

template <class T, class Make>
void launch_fill(void* to, std::int64_t count, Make make) {
  launch("fill", fill<T, Make>, {.grid = kCtas, .block = kThreads},
         /*stream=*/nullptr, static_cast<T*>(to), count, make);
  check_cuda(cudaStreamSynchronize(nullptr), "make random inputs");
}

}  // namespace

void fill_normal_f32(void* to, std::int64_t count, std::uint64_t seed) {
  launch_fill<float>(to, count, NormalF32{seed});
}
void fill_normal_bf16(void* to, std::int64_t count, std::uint64_t seed) {
  launch_fill<std::uint16_t>(to, count, NormalBf16{seed});
}
void fill_normal_e4m3(void* to, std::int64_t count, std::uint64_t seed) {
  launch_fill<std::uint8_t>(to, count, NormalE4m3{seed});
}
void fill_random_bytes(void* to, std::int64_t bytes, std::uint64_t seed, std::uint8_t and_mask,
                       std::uint8_t or_mask) {
  launch_fill<std::uint8_t>(to, bytes, RandomByte{seed, and_mask, or_mask});
}

}  // namespace dsv4::cuda
