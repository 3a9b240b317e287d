// detokenizer_test.cc: piecewise text is whole text, whatever the tokens.
#include "text/detokenizer.h"

#include <gtest/gtest.h>

#include <random>

#include "dsv4/error.h"
#include "text/tokenizer_fixtures.h"
#include "text/utf8.h"

namespace dsv4 {
namespace {

void expect_same_as_decode(const Tokenizer& tokenizer, const std::vector<TokenId>& ids,
                           bool skip_special) {
  Detokenizer detokenizer(tokenizer, skip_special);
  std::string whole;
  for (TokenId id : ids) {
    const std::string piece = detokenizer.push(id);
    ASSERT_EQ(valid_utf8_prefix(piece), piece.size());
    whole += piece;
  }
  whole += detokenizer.flush();
  ASSERT_EQ(whole, tokenizer.decode(ids, skip_special));
  ASSERT_EQ(detokenizer.flush(), "");  // nothing is left for the next sequence
}

TEST(Detokenizer, PiecesAddUpToDecodeOnRandomTokens) {
  const Tokenizer& tokenizer = nano_tokenizer();
  std::vector<TokenId> partial;  // tokens that are not whole characters: the hard ones
  for (TokenId id = 0; id < tokenizer.vocab_size(); ++id) {
    const std::string_view bytes = tokenizer.token_bytes(id);
    if (valid_utf8_prefix(bytes) < bytes.size()) partial.push_back(id);
  }
  ASSERT_GE(partial.size(), 128u);
  std::mt19937 random(17);
  for (int round = 0; round < 20000; ++round) {
    std::vector<TokenId> ids(random() % 20);
    for (TokenId& id : ids) {
      id = random() % 4 == 0 ? static_cast<TokenId>(random() % tokenizer.vocab_size())
                             : partial[random() % partial.size()];
    }
    ASSERT_NO_FATAL_FAILURE(expect_same_as_decode(tokenizer, ids, round % 2 == 0))
        << "round " << round;
  }
}

TEST(Detokenizer, CharacterComesWhole) {
  const Tokenizer& tokenizer = nano_tokenizer();
  const std::vector<TokenId> ids = tokenizer.encode("\U0001F30D");
  ASSERT_EQ(ids.size(), 4u) << "the test wants a character that nano spells in bytes";
  Detokenizer detokenizer(tokenizer);
  for (int i = 0; i < 3; ++i) EXPECT_EQ(detokenizer.push(ids[i]), "");
  EXPECT_EQ(detokenizer.push(ids[3]), "\U0001F30D");
  EXPECT_EQ(detokenizer.flush(), "");
}

TEST(Detokenizer, BrokenCharacterIsReplacedOnceItIsKnown) {
  const Tokenizer& tokenizer = nano_tokenizer();
  const std::vector<TokenId> ids = tokenizer.encode("\U0001F30D");
  Detokenizer detokenizer(tokenizer);
  detokenizer.push(ids[0]);
  EXPECT_EQ(detokenizer.push(tokenizer.encode("a")[0]),
            "\uFFFD"
            "a");
  detokenizer.push(ids[0]);
  EXPECT_EQ(detokenizer.push(ids[0]), "\uFFFD");  // the second may still begin a character
  EXPECT_EQ(detokenizer.flush(), "\uFFFD");
  EXPECT_EQ(detokenizer.push(tokenizer.encode("a")[0]), "a");
}

TEST(Detokenizer, SkippedMarkInsideACharacterDoesNotBreakIt) {
  const Tokenizer& tokenizer = nano_tokenizer();
  std::vector<TokenId> ids = tokenizer.encode("\U0001F30D");
  ids.insert(ids.begin() + 2, 0);  // BOS, special
  ASSERT_TRUE(tokenizer.is_special(0));
  expect_same_as_decode(tokenizer, ids, /*skip_special=*/true);
  expect_same_as_decode(tokenizer, ids, /*skip_special=*/false);
  EXPECT_EQ(tokenizer.decode(ids, /*skip_special=*/true), "\U0001F30D");
}

TEST(Detokenizer, RefusedIdChangesNothing) {
  const Tokenizer& tokenizer = nano_tokenizer();
  const std::vector<TokenId> ids = tokenizer.encode("\U0001F30D");
  Detokenizer detokenizer(tokenizer);
  for (int i = 0; i < 3; ++i) detokenizer.push(ids[i]);
  EXPECT_THROW(detokenizer.push(-1), Error);
  EXPECT_THROW(detokenizer.push(tokenizer.vocab_size()), Error);
  EXPECT_EQ(detokenizer.push(ids[3]), "\U0001F30D");
}

}  // namespace
}  // namespace dsv4
