// added_tokens.cc: a sorted list read like a trie; each byte of the text narrows a range of it.
#include "text/added_tokens.h"

#include <algorithm>
#include <cstdint>

namespace dsv4 {

AddedTokens::AddedTokens(std::vector<AddedToken> tokens) : tokens_(std::move(tokens)) {
  std::sort(tokens_.begin(), tokens_.end(),
            [](const AddedToken& a, const AddedToken& b) { return a.content < b.content; });
  for (const AddedToken& token : tokens_) {
    begins_[static_cast<std::uint8_t>(token.content[0])] = true;
  }
}

AddedTokens::Match AddedTokens::find(std::string_view text, std::size_t from) const {
  for (std::size_t begin = from; begin < text.size(); ++begin) {
    if (!begins_[static_cast<std::uint8_t>(text[begin])]) continue;
    Match longest{text.size(), text.size(), 0};
    auto low = tokens_.begin(),
         high = tokens_.end();  // those that agree with text[begin, begin + depth)
    for (std::size_t depth = 0; begin + depth < text.size(); ++depth) {
      const auto byte = static_cast<std::uint8_t>(text[begin + depth]);
      const auto at_depth = [depth](const AddedToken& token) {
        return static_cast<std::uint8_t>(token.content[depth]);
      };
      low =
          std::partition_point(low, high, [&](const AddedToken& t) { return at_depth(t) < byte; });
      high =
          std::partition_point(low, high, [&](const AddedToken& t) { return at_depth(t) == byte; });
      if (low == high) break;
      if (low->content.size() == depth + 1) {  // the shortest stands first
        longest = {begin, begin + depth + 1, low->id};
        if (++low == high) break;
      }
    }
    if (longest.end > longest.begin) return longest;
  }
  return {text.size(), text.size(), 0};
}

std::optional<TokenId> AddedTokens::id_of(std::string_view content) const {
  const auto at = std::lower_bound(
      tokens_.begin(), tokens_.end(), content,
      [](const AddedToken& token, std::string_view wanted) { return token.content < wanted; });
  if (at == tokens_.end() || at->content != content) return std::nullopt;
  return at->id;
}

}  // namespace dsv4
