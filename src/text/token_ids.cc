#include "text/token_ids.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>

#include "base/error.h"
#include "text/strict_json.h"

namespace dsv4 {
namespace {

constexpr std::string_view kSeparators = " \t\r\n,[]";

}  // namespace

std::vector<TokenId> parse_token_ids(std::string_view text) {
  std::vector<TokenId> ids;
  for (std::size_t at = text.find_first_not_of(kSeparators); at != text.npos;) {
    const std::size_t end = std::min(text.find_first_of(kSeparators, at), text.size());
    const std::string_view word = text.substr(at, end - at);
    TokenId id = -1;
    const auto [stop, error] = std::from_chars(word.data(), word.data() + word.size(), id);
    if (error != std::errc() || stop != word.data() + word.size() || id < 0) {
      fail(ErrorCode::kBadRequest,
           "{} at byte {} is no token id; give numbers from 0, separated by spaces or commas",
           quote(word), at);
    }
    ids.push_back(id);
    at = text.find_first_not_of(kSeparators, end);
  }
  return ids;
}

std::string format_token_ids(const std::vector<TokenId>& ids) {
  return fmt::format("{}", fmt::join(ids, " "));
}

}  // namespace dsv4
