// stop_strings.cc: fuzzes the search for stop strings in a text that comes in pieces, against plain
// search in the whole. The input: stop strings, each ended by 0x1f, a zero, lengths of pieces in
// characters up to a zero, the text.
#include "runtime/stop_strings.h"

#include <algorithm>

#include "fuzz.h"

namespace dsv4::fuzz {
namespace {

// The match that ends first, the longest of several that end there; empty if there is none.
std::string_view first_match(std::string_view text, const std::vector<std::string>& strings) {
  std::string_view match;
  for (const std::string& string : strings) {
    const std::size_t at = text.find(string);
    if (at == std::string_view::npos) continue;
    const std::string_view candidate = text.substr(at, string.size());
    const char *end = candidate.data() + candidate.size(), *best = match.data() + match.size();
    if (match.empty() || end < best || (end == best && candidate.size() > match.size())) {
      match = candidate;
    }
  }
  return match;
}

std::size_t bytes_of_characters(std::string_view text, std::size_t num_characters) {
  std::size_t num_bytes = 0;
  while (num_characters-- > 0 && num_bytes < text.size()) {
    num_bytes += next_utf8(text.substr(num_bytes)).num_bytes;
  }
  return num_bytes;
}

void run(std::string_view input) {
  constexpr std::string_view kZero("\0", 1);
  std::string_view list = take_part(input, kZero);
  std::vector<std::string> strings;
  while (!list.empty()) {
    const std::string_view string = take_part(list, "\x1f");
    if (!string.empty() && valid_utf8_prefix(string) == string.size()) strings.emplace_back(string);
  }
  const std::string_view lengths = take_part(input, kZero);
  const std::string_view text = input.substr(0, valid_utf8_prefix(input));

  StopStrings search(strings);
  std::string got;
  for (std::size_t at = 0, i = 0; at < text.size(); ++i) {
    const std::size_t num_characters =
        lengths.empty() ? text.size() : static_cast<std::uint8_t>(lengths[i % lengths.size()]);
    const std::size_t num_bytes = bytes_of_characters(text.substr(at), num_characters);
    const std::string piece = search.push(text.substr(at, num_bytes));
    FUZZ_CHECK(valid_utf8_prefix(piece) == piece.size());
    got += piece;
    at += num_bytes;
  }
  const std::string_view match = first_match(text, strings);
  if (match.empty()) {
    FUZZ_CHECK(!search.match());
    FUZZ_CHECK(got + search.flush() == text);
  } else {
    FUZZ_CHECK(search.match() && *search.match() == match);
    FUZZ_CHECK(got == text.substr(0, static_cast<std::size_t>(match.data() - text.data())));
  }
}

}  // namespace
}  // namespace dsv4::fuzz

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace dsv4::fuzz;
  run(as_text(data, size));
  return 0;
}
