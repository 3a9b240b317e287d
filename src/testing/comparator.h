// comparator.h: accepting a result, or saying which element is worst and by how much.
//
// Accepts, never rejects: an element passes only if err <= tolerance, which no NaN satisfies.
#pragma once

#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <type_traits>
#include <vector>

namespace dsv4::testing {

// What element i may differ by: absolute + relative * |want[i]| + of_magnitude * magnitudes[i].
// Formulas for the factors: tolerances.h.
struct Tolerance {
  double absolute = 0;
  double relative = 0;
  double of_magnitude = 0;
  std::vector<double> magnitudes;  // one an element, e.g. sum of |x||w|; empty: none

  // The largest difference that passes at element idx.
  double at(std::size_t idx, double want) const;
};

// Success iff both have the same length, NaN and infinities (by sign) sit in the same places, and
// every other element is within its tolerance. A tolerance that is NaN, infinite or negative passes
// nothing. The message names the worst element, both values, and how many are beyond.
::testing::AssertionResult compare_values(const std::vector<double>& got,
                                          const std::vector<double>& want,
                                          const Tolerance& tolerance);

// Success iff equal in length and in every byte; element_bytes only shapes the message.
::testing::AssertionResult compare_bytes(const void* got, std::size_t got_bytes, const void* want,
                                         std::size_t want_bytes, std::size_t element_bytes);

template <class T>
std::vector<double> to_doubles(const std::vector<T>& values) {
  return std::vector<double>(values.begin(), values.end());
}

template <class T, class U>
::testing::AssertionResult compare(const std::vector<T>& got, const std::vector<U>& want,
                                   const Tolerance& tolerance) {
  return compare_values(to_doubles(got), to_doubles(want), tolerance);
}

template <class T>
::testing::AssertionResult compare_bits(const std::vector<T>& got, const std::vector<T>& want) {
  static_assert(std::has_unique_object_representations_v<T> || std::is_floating_point_v<T>,
                "padding bytes are no result");
  return compare_bytes(got.data(), got.size() * sizeof(T), want.data(), want.size() * sizeof(T),
                       sizeof(T));
}

}  // namespace dsv4::testing

#define EXPECT_CLOSE(got, want, tolerance) \
  EXPECT_TRUE(::dsv4::testing::compare(got, want, tolerance))
#define EXPECT_SAME_BITS(got, want) EXPECT_TRUE(::dsv4::testing::compare_bits(got, want))
