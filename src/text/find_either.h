// find_either.h: the search for the first of two pieces of text, for both parsers of completions.
#pragma once

#include <algorithm>
#include <cstddef>
#include <string_view>

namespace dsv4 {

struct EitherPiece {
  std::size_t at;  // npos: neither is there
  bool is_first;   // whether it is `piece_a`
};

// The piece that begins first in `text` at or after `from`. Pieces are not empty, and neither
// begins with the other. Takes time in proportion to the distance: two searches to the end of the
// text would be quadratic in a text with many of one piece and none of the other.
inline EitherPiece find_either(std::string_view text, std::string_view piece_a,
                               std::string_view piece_b, std::size_t from = 0) {
  constexpr std::size_t kNone = std::string_view::npos;
  const std::size_t overhang = std::max(piece_a.size(), piece_b.size()) - 1;
  for (std::size_t window = 256; from < text.size(); from += window, window *= 2) {
    const std::string_view part = text.substr(from, window + overhang);
    const std::size_t a = part.find(piece_a), b = part.find(piece_b), at = std::min(a, b);
    if (at < window) return {from + at, a < b};
    // In the overhang a longer piece could begin before it.
  }
  return {kNone, false};
}

}  // namespace dsv4
