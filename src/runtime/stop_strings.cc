#include "runtime/stop_strings.h"

#include <algorithm>
#include <utility>

#include "base/check.h"

namespace dsv4 {

StopStrings::StopStrings(std::vector<std::string> strings) {
  std::stable_sort(strings.begin(), strings.end(),
                   [](const auto& a, const auto& b) { return a.size() > b.size(); });
  for (std::string& text : strings) {
    DSV4_CHECK(!text.empty());
    std::vector<std::size_t> borders(text.size() + 1, 0);
    for (std::size_t i = 1, border = 0; i < text.size(); ++i) {
      while (border > 0 && text[i] != text[border]) border = borders[border];
      if (text[i] == text[border]) ++border;
      borders[i + 1] = border;
    }
    patterns_.push_back({std::move(text), std::move(borders)});
  }
}

void StopStrings::advance(Pattern& pattern, char byte) {
  std::size_t& matched = pattern.num_matched;
  while (matched > 0 && pattern.text[matched] != byte) matched = pattern.borders[matched];
  if (pattern.text[matched] == byte) ++matched;
}

std::string StopStrings::push(std::string_view piece) {
  if (match_) return {};
  std::size_t longest = 0;
  for (const char byte : piece) {
    held_ += byte;
    longest = 0;
    for (Pattern& pattern : patterns_) {
      advance(pattern, byte);
      if (pattern.num_matched == pattern.text.size()) {
        match_ = pattern.text;
        std::string before = held_.substr(0, held_.size() - pattern.text.size());
        held_.clear();
        return before;
      }
      longest = std::max(longest, pattern.num_matched);
    }
  }
  if (piece.empty()) return {};
  std::string certain = held_.substr(0, held_.size() - longest);
  held_.erase(0, certain.size());
  return certain;
}

std::string StopStrings::flush() { return std::exchange(held_, {}); }

}  // namespace dsv4
