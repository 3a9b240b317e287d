// stop_strings.h: finds the stop strings of a request in its text while the text grows, and holds
// back what may still become one. Where the text comes from: text_output.h.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace dsv4 {

// The match is that which ends first, the longest of several that end at the same byte. So it does
// not depend on how the text is cut into pieces.
class StopStrings {
 public:
  // Valid UTF-8, not empty.
  explicit StopStrings(std::vector<std::string> strings);

  // The text that is certain to precede any stop string. Pieces are whole UTF-8 characters, and so
  // is what comes back. After a match: empty.
  std::string push(std::string_view piece);
  // What is held back, when the text ends without a match.
  std::string flush();

  // The string that was found.
  const std::optional<std::string>& match() const { return match_; }

 private:
  // Knuth-Morris-Pratt: borders[i] is the length of the longest proper prefix of the first i bytes
  // that is also their suffix.
  struct Pattern {
    std::string text;
    std::vector<std::size_t> borders;
    std::size_t num_matched = 0;  // bytes of `text` that the text so far ends in
  };
  static void advance(Pattern& pattern, char byte);

  std::vector<Pattern> patterns_;  // longest first
  std::string held_;
  std::optional<std::string> match_;
};

}  // namespace dsv4
