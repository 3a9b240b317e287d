// generators.h: numbers for tests, the same on every platform and for every run.
#pragma once

#include <cstdint>
#include <vector>

namespace dsv4::testing {

// A counter-based generator: number i of a seed is a hash of both. Only integer arithmetic and
// exact or correctly rounded floating-point steps, so no library's sine or logarithm matters.
class Random {
 public:
  explicit Random(std::uint64_t seed) : seed_(seed) {}

  std::uint64_t bits();
  // In [0, 1), a multiple of 2^-53.
  double uniform();
  double uniform(double low, double high) { return low + (high - low) * uniform(); }
  // 0 .. n - 1, n > 0; the bias is below n / 2^64.
  std::int64_t index(std::int64_t n) {
    return static_cast<std::int64_t>(bits() % static_cast<std::uint64_t>(n));
  }
  // Mean 0, deviation 1: the sum of twelve uniform numbers, so never beyond 6.
  double normal();
  // A normal number over a uniform one: tails like 1/x^2, up to 6 * 2^10. Finds formats that
  // saturate and scales that outliers stretch.
  double heavy_tailed() { return normal() / uniform(0x1p-10, 1); }

 private:
  std::uint64_t seed_;
  std::uint64_t count_ = 0;
};

std::vector<float> normal_values(std::uint64_t seed, std::int64_t count, double deviation = 1);
std::vector<float> uniform_values(std::uint64_t seed, std::int64_t count, double low, double high);
std::vector<float> heavy_tailed_values(std::uint64_t seed, std::int64_t count);

}  // namespace dsv4::testing
