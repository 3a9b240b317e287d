// find_either_test.cc: against two plain searches.
#include "text/find_either.h"

#include <gtest/gtest.h>

#include <random>
#include <string>

namespace dsv4 {
namespace {

void expect_like_two_searches(std::string_view text, std::string_view a, std::string_view b,
                              std::size_t from) {
  const std::size_t at_a = text.find(a, from), at_b = text.find(b, from);
  const EitherPiece got = find_either(text, a, b, from);
  EXPECT_EQ(got.at, std::min(at_a, at_b)) << text << " from " << from;
  if (got.at != text.npos) {
    EXPECT_EQ(got.is_first, at_a < at_b) << text << " from " << from;
  }
}

TEST(FindEither, EveryPlaceAroundTheEndsOfWindows) {
  for (std::size_t at = 0; at < 800; ++at) {
    std::string text(at, '.');
    expect_like_two_searches(text + "<short>", "<short>", "</a longer piece>", 0);
    expect_like_two_searches(text + "</a longer piece>", "<short>", "</a longer piece>", 0);
    expect_like_two_searches(text + "</a longer pie<short>", "<short>", "</a longer piece>", 0);
    expect_like_two_searches(text + "</a longer piece><short>", "<short>", "</a longer piece>", 0);
  }
}

TEST(FindEither, RandomTextsFromAnyPlace) {
  std::mt19937 random(1);
  for (int i = 0; i < 20000; ++i) {
    std::string text(random() % 600, 'a');
    for (char& c : text) c = random() % 8 == 0 ? 'b' : 'a';
    expect_like_two_searches(text, "bab", "aabbbaaaaa", random() % (text.size() + 2));
  }
}

}  // namespace
}  // namespace dsv4
