// Comparison of results element by element, and of bytes.
#include "testing/comparator.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

namespace dsv4::testing {
namespace {

// How far element idx is beyond its tolerance: 0 if it passes, infinite if it is a NaN or an
// infinity in the wrong place.
double excess(double got, double want, double tolerance) {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  if (std::isnan(got) && std::isnan(want)) return 0;
  if (std::isinf(want) && got == want) return 0;
  const double error = std::fabs(got - want);
  if (std::isfinite(error) && std::isfinite(tolerance) && error <= tolerance) return 0;
  if (!std::isfinite(error) || !(tolerance > 0) || !std::isfinite(tolerance)) return kInfinity;
  return error / tolerance;
}

std::string hex_bytes(const unsigned char* bytes, std::size_t count) {
  std::string text;
  for (std::size_t i = count; i > 0; --i) text += fmt::format("{:02x}", bytes[i - 1]);
  return text;
}

}  // namespace

double Tolerance::at(std::size_t idx, double want) const {
  double tolerance = absolute + relative * std::fabs(want);
  if (!magnitudes.empty()) tolerance += of_magnitude * magnitudes[idx];
  return tolerance;
}

::testing::AssertionResult compare_values(const std::vector<double>& got,
                                          const std::vector<double>& want,
                                          const Tolerance& tolerance) {
  if (got.size() != want.size()) {
    return ::testing::AssertionFailure()
           << fmt::format("{} elements, wanted {}", got.size(), want.size());
  }
  if (!tolerance.magnitudes.empty() && tolerance.magnitudes.size() != want.size()) {
    return ::testing::AssertionFailure() << fmt::format("{} magnitudes for {} elements",
                                                        tolerance.magnitudes.size(), want.size());
  }
  std::size_t beyond = 0;
  std::size_t worst = 0;
  double worst_excess = 0;
  for (std::size_t i = 0; i < got.size(); ++i) {
    const double element_excess = excess(got[i], want[i], tolerance.at(i, want[i]));
    if (element_excess == 0) continue;
    ++beyond;
    if (element_excess > worst_excess) {
      worst = i;
      worst_excess = element_excess;
    }
  }
  if (beyond == 0) return ::testing::AssertionSuccess();
  return ::testing::AssertionFailure() << fmt::format(
             "{} of {} elements beyond tolerance; worst [{}]: got {:.9g}, want {:.9g}, error "
             "{:.3g}, "
             "tolerance {:.3g}",
             beyond, got.size(), worst, got[worst], want[worst],
             std::fabs(got[worst] - want[worst]), tolerance.at(worst, want[worst]));
}

::testing::AssertionResult compare_bytes(const void* got, std::size_t got_bytes, const void* want,
                                         std::size_t want_bytes, std::size_t element_bytes) {
  if (got_bytes != want_bytes) {
    return ::testing::AssertionFailure() << fmt::format(
               "{} elements, wanted {}", got_bytes / element_bytes, want_bytes / element_bytes);
  }
  const auto* got_data = static_cast<const unsigned char*>(got);
  const auto* want_data = static_cast<const unsigned char*>(want);
  std::size_t differing = 0;
  std::size_t first = 0;
  for (std::size_t i = 0; i < got_bytes; i += element_bytes) {
    if (std::memcmp(got_data + i, want_data + i, element_bytes) == 0) continue;
    if (differing++ == 0) first = i;
  }
  if (differing == 0) return ::testing::AssertionSuccess();
  return ::testing::AssertionFailure()
         << fmt::format("{} of {} elements differ in their bits; first [{}]: got 0x{}, want 0x{}",
                        differing, got_bytes / element_bytes, first / element_bytes,
                        hex_bytes(got_data + first, element_bytes),
                        hex_bytes(want_data + first, element_bytes));
}

}  // namespace dsv4::testing
