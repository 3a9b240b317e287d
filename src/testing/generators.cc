// The counter-based generator.
#include "testing/generators.h"

namespace dsv4::testing {
namespace {

// The finaliser of MurmurHash3, with the constants of David Stafford's variant 13.
std::uint64_t hash(std::uint64_t x) {
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9u;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EBu;
  return x ^ (x >> 31);
}

template <class Next>
std::vector<float> values(std::int64_t count, Next next) {
  std::vector<float> result;
  result.reserve(static_cast<std::size_t>(count));
  for (std::int64_t i = 0; i < count; ++i) result.push_back(static_cast<float>(next()));
  return result;
}

}  // namespace

std::uint64_t Random::bits() {
  return hash(hash(seed_ ^ 0x6A09E667F3BCC909u) + 0x9E3779B97F4A7C15u * ++count_);
}

double Random::uniform() { return static_cast<double>(bits() >> 11) * 0x1p-53; }

double Random::normal() {
  double sum = -6;
  for (int i = 0; i < 12; ++i) sum += uniform();
  return sum;
}

std::vector<float> normal_values(std::uint64_t seed, std::int64_t count, double deviation) {
  Random random(seed);
  return values(count, [&] { return deviation * random.normal(); });
}

std::vector<float> uniform_values(std::uint64_t seed, std::int64_t count, double low, double high) {
  Random random(seed);
  return values(count, [&] { return random.uniform(low, high); });
}

std::vector<float> heavy_tailed_values(std::uint64_t seed, std::int64_t count) {
  Random random(seed);
  return values(count, [&] { return random.heavy_tailed(); });
}

}  // namespace dsv4::testing
