// added_tokens_test.cc: leftmost, then longest, against a plain search.
#include "text/added_tokens.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <set>

namespace dsv4 {
namespace {

TEST(AddedTokens, MatchesPlainSearchOnRandomLists) {
  std::mt19937 random(23);
  const auto word = [&](int max_length) {
    std::string text;
    for (int i = 1 + random() % max_length; i > 0; --i) text.push_back("ab\xFF"[random() % 3]);
    return text;
  };
  for (int round = 0; round < 3000; ++round) {
    std::set<std::string> contents;
    for (int i = random() % 8; i > 0; --i) contents.insert(word(5));
    std::vector<AddedToken> list;
    for (const std::string& content : contents) {
      list.push_back({static_cast<TokenId>(list.size()), content, false});
    }
    std::shuffle(list.begin(), list.end(), random);
    const AddedTokens tokens(list);
    const std::string text = word(30);
    const std::size_t from = random() % (text.size() + 1);
    AddedTokens::Match want{text.size(), text.size(), 0};
    for (std::size_t begin = from; begin < text.size() && want.begin == want.end; ++begin) {
      for (const AddedToken& token : list) {
        if (text.compare(begin, token.content.size(), token.content) != 0) continue;
        if (want.begin == want.end || token.content.size() > want.end - want.begin) {
          want = {begin, begin + token.content.size(), token.id};
        }
      }
    }
    const AddedTokens::Match got = tokens.find(text, from);
    ASSERT_EQ(got.begin, want.begin) << "round " << round;
    ASSERT_EQ(got.end, want.end) << "round " << round;
    ASSERT_EQ(got.id, want.id) << "round " << round;
    for (const AddedToken& token : list) ASSERT_EQ(tokens.id_of(token.content), token.id);
    ASSERT_FALSE(tokens.id_of("c").has_value());
    ASSERT_FALSE(tokens.id_of("").has_value());
  }
}

}  // namespace
}  // namespace dsv4
