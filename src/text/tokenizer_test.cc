// tokenizer_test.cc: recorded ids, hostile text, and that every text survives the round trip.
#include "text/tokenizer.h"

#include <gtest/gtest.h>

#include <random>
#include <thread>

#include "dsv4/error.h"
#include "text/tokenizer_fixtures.h"
#include "text/utf8.h"

namespace dsv4 {
namespace {

void expect_cases(const Tokenizer& tokenizer, const std::filesystem::path& path) {
  const std::vector<TokenizerCase> cases = read_tokenizer_cases(path);
  ASSERT_GE(cases.size(), 100u);
  for (const TokenizerCase& c : cases) {
    EXPECT_EQ(tokenizer.encode(c.text), c.ids) << c.text;
    EXPECT_EQ(tokenizer.decode(c.ids), c.text);
  }
}

std::string random_text(std::mt19937& random, int num_characters) {
  static const char* const kSpecimens[] = {" ",      "  ",      "\n",         "\r\n",
                                           "\t",     "'s",      "1",          "12345",
                                           "\u4F60", "\u3042",  "e\u0301",    "\u0130",
                                           "\u180E", "\u0085",  "\U0001F30D", "<think>",
                                           "</thin", "<",       "\uFF5C",     "<\uFF5CUser\uFF5C>",
                                           "!",      "Zeppelin"};
  std::string text;
  for (int i = 0; i < num_characters; ++i) {
    if (random() % 2 == 0) {
      text += kSpecimens[random() % std::size(kSpecimens)];
      continue;
    }
    std::uint32_t code_point = random() % (random() % 2 == 0 ? 0x800 : 0x110000);
    if (code_point >= 0xD800 && code_point <= 0xDFFF) code_point = 0;
    if (code_point < 0x80) {
      text += static_cast<char>(code_point);
    } else if (code_point < 0x800) {
      text += {static_cast<char>(0xC0 | code_point >> 6),
               static_cast<char>(0x80 | (code_point & 0x3F))};
    } else if (code_point < 0x10000) {
      text += {static_cast<char>(0xE0 | code_point >> 12),
               static_cast<char>(0x80 | (code_point >> 6 & 0x3F)),
               static_cast<char>(0x80 | (code_point & 0x3F))};
    } else {
      text += {static_cast<char>(0xF0 | code_point >> 18),
               static_cast<char>(0x80 | (code_point >> 12 & 0x3F)),
               static_cast<char>(0x80 | (code_point >> 6 & 0x3F)),
               static_cast<char>(0x80 | (code_point & 0x3F))};
    }
  }
  return text;
}

// What must hold for any text with any tokenizer.
void expect_sound(const Tokenizer& tokenizer) {
  std::mt19937 random(11);
  for (int round = 0; round < 2000; ++round) {
    const std::string text = random_text(random, random() % 40);
    const std::vector<TokenId> ids = tokenizer.encode(text);
    ASSERT_EQ(tokenizer.decode(ids), text);
    for (TokenId id : ids) ASSERT_TRUE(tokenizer.is_token(id));
  }
  EXPECT_EQ(tokenizer.encode(""), std::vector<TokenId>{});
  EXPECT_EQ(tokenizer.decode({}), "");
  for (int byte = 0; byte < 0x80; ++byte) {  // NUL among them
    const std::string text(1, static_cast<char>(byte));
    EXPECT_EQ(tokenizer.encode(text).size(), 1u);
    EXPECT_EQ(tokenizer.decode(tokenizer.encode(text)), text);
  }
  const std::string with_nul("a\0b<think>\0", 11);
  EXPECT_EQ(tokenizer.decode(tokenizer.encode(with_nul)), with_nul);
}

void expect_long_pieces_done(const Tokenizer& tokenizer) {
  constexpr std::size_t kLength = std::size_t{1} << 20;
  for (const char* unit :
       {"a", " ", "\n", "\r\n", "1", "!", "\u4F60", "\u0301", " \n", "\x01", "ab"}) {
    std::string text;
    while (text.size() < kLength) text += unit;
    EXPECT_EQ(tokenizer.decode(tokenizer.encode(text)), text) << unit;
    EXPECT_EQ(tokenizer.decode(tokenizer.encode(text + "x")), text + "x") << unit;
  }
}

TEST(TokenizerNano, RecordedCasesBothWays) {
  expect_cases(nano_tokenizer(), source_dir() / "models/nano/tokens.json");
}
TEST(TokenizerNano, AnyTextSurvives) { expect_sound(nano_tokenizer()); }
TEST(TokenizerNano, MegabytePieces) { expect_long_pieces_done(nano_tokenizer()); }

TEST(TokenizerV4, RecordedCasesBothWays) {
  DSV4_V4_TOKENIZER_OR_SKIP(tokenizer);
  expect_cases(tokenizer, source_dir() / "tests/data/golden/tokenizer/cases.json");
  EXPECT_EQ(tokenizer.vocab_size(), 129280);
  for (TokenId id = 0; id < tokenizer.vocab_size(); ++id) ASSERT_TRUE(tokenizer.is_token(id));
}
TEST(TokenizerV4, AnyTextSurvives) {
  DSV4_V4_TOKENIZER_OR_SKIP(tokenizer);
  expect_sound(tokenizer);
}
TEST(TokenizerV4, MegabytePieces) {
  DSV4_V4_TOKENIZER_OR_SKIP(tokenizer);
  expect_long_pieces_done(tokenizer);
}
TEST(TokenizerV4, PlainAsciiMarksAreCutFromTheText) {
  DSV4_V4_TOKENIZER_OR_SKIP(tokenizer);
  for (const char* mark : {"<think>", "</think>", "<dsml:", "</dsml:", "<|EOT|>"}) {
    const std::optional<TokenId> id = tokenizer.find_added_token(mark);
    ASSERT_TRUE(id.has_value()) << mark;
    EXPECT_EQ(tokenizer.encode(std::string("a") + mark + "b"),
              (std::vector<TokenId>{tokenizer.encode("a")[0], *id, tokenizer.encode("b")[0]}));
    EXPECT_FALSE(tokenizer.is_special(*id));
    EXPECT_TRUE(tokenizer.is_added(*id));
  }
}

TEST(Tokenizer, TextEndingInsideAMark) {
  const Tokenizer& tokenizer = nano_tokenizer();
  const std::string mark = "<\uFF5CAssistant\uFF5C>";
  const TokenId id = tokenizer.find_added_token(mark).value();
  for (std::size_t cut = 1; cut < mark.size(); ++cut) {
    const std::string part = mark.substr(0, cut);
    for (TokenId token : tokenizer.encode("x" + part)) ASSERT_FALSE(tokenizer.is_added(token));
    // A mark begun anew inside a broken one is found.
    ASSERT_EQ(tokenizer.encode(part + mark).back(), id);
  }
  EXPECT_EQ(tokenizer.encode(mark), std::vector<TokenId>{id});
  EXPECT_EQ(tokenizer.encode(mark + mark), (std::vector<TokenId>{id, id}));
}

TEST(Tokenizer, InvalidTextReadsAsReplacementCharacters) {
  const Tokenizer& tokenizer = nano_tokenizer();
  const std::string r = "\uFFFD";
  const std::pair<std::string, std::string> cases[] = {
      {"\xED\xA0\x80", r + r + r},             // a lone surrogate
      {"a\xF0\x9F\x8C", "a" + r},              // ends inside a character
      {"\xFF<think>\x80", r + "<think>" + r},  // marks are still found
      {"\xC3(", r + "("},
      {std::string("\xE4\0", 2), r + std::string(1, '\0')}};
  for (const auto& [invalid, repaired] : cases) {
    EXPECT_EQ(tokenizer.encode(invalid), tokenizer.encode(repaired));
    EXPECT_EQ(tokenizer.decode(tokenizer.encode(invalid)), repaired);
  }
  std::mt19937 random(3);
  for (int round = 0; round < 2000; ++round) {
    std::string bytes;
    for (int i = random() % 50; i > 0; --i) bytes.push_back(static_cast<char>(random()));
    std::string repaired;
    append_final_utf8(bytes, repaired);
    ASSERT_EQ(tokenizer.decode(tokenizer.encode(bytes)), repaired);
  }
}

TEST(Tokenizer, IdsThatAreNoTokensAreRefused) {
  const Tokenizer& tokenizer = nano_tokenizer();
  for (TokenId id : {-1, tokenizer.vocab_size(), std::numeric_limits<TokenId>::min(),
                     std::numeric_limits<TokenId>::max()}) {
    EXPECT_FALSE(tokenizer.is_token(id));
    EXPECT_FALSE(tokenizer.is_added(id));
    EXPECT_FALSE(tokenizer.is_special(id));
    EXPECT_THROW(tokenizer.token_bytes(id), Error);
    EXPECT_THROW(tokenizer.decode(std::vector<TokenId>{id}), Error);
  }
  EXPECT_NO_THROW(tokenizer.token_bytes(0));
  EXPECT_NO_THROW(tokenizer.token_bytes(tokenizer.vocab_size() - 1));
}

TEST(Tokenizer, SkipSpecialLeavesOtherMarks) {
  DSV4_V4_TOKENIZER_OR_SKIP(tokenizer);  // nano's marks differ in the flag
  const std::vector<TokenId> ids =
      tokenizer.encode("<\uFF5Cbegin\u2581of\u2581sentence\uFF5C><\uFF5CUser\uFF5C>Hi<think>");
  EXPECT_EQ(tokenizer.decode(ids, /*skip_special=*/true), "<\uFF5CUser\uFF5C>Hi<think>");
}

TEST(Tokenizer, TextPastTheLimitIsRefused) {
  try {
    nano_tokenizer().encode(std::string(kMaxTextBytes + 1, 'a'));
    ADD_FAILURE() << "no error";
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), ErrorCode::kBadRequest);
  }
}

TEST(Tokenizer, SharedBetweenThreads) {
  const Tokenizer& tokenizer = nano_tokenizer();
  std::mt19937 random(5);
  const std::string text = random_text(random, 5000);
  const std::vector<TokenId> want = tokenizer.encode(text);
  std::vector<std::vector<TokenId>> got(4);
  std::vector<std::thread> threads;
  for (auto& ids : got)
    threads.emplace_back([&ids, &tokenizer, &text] { ids = tokenizer.encode(text); });
  for (std::thread& thread : threads) thread.join();
  for (const auto& ids : got) EXPECT_EQ(ids, want);
}

}  // namespace
}  // namespace dsv4
