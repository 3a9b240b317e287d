// counted.h: a number with its noun, for sentences that a person reads.
#pragma once

#include <fmt/format.h>

#include <cstdint>
#include <string>
#include <string_view>

namespace dsv4 {

// "1 block", "0 blocks", "2 blocks".
inline std::string counted(std::int64_t number, std::string_view one, std::string_view many) {
  return fmt::format("{} {}", number, number == 1 ? one : many);
}

}  // namespace dsv4
