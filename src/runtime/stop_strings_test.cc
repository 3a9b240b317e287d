// Stop strings: found wherever pieces end, held back no longer than needed, never half a character.
#include "runtime/stop_strings.h"

#include <gtest/gtest.h>

#include <random>

#include "runtime/nano_model.h"
#include "runtime/text_output.h"
#include "text/utf8.h"

namespace dsv4 {
namespace {

struct Output {
  std::string text;
  std::optional<std::string> match;
  bool operator==(const Output&) const = default;
};
void PrintTo(const Output& output, std::ostream* os) {
  *os << output.text << " | " << output.match.value_or("-");
}

Output run(const std::vector<std::string>& stops, const std::vector<std::string>& pieces) {
  StopStrings strings(stops);
  std::string text;
  for (const std::string& piece : pieces) text += strings.push(piece);
  text += strings.flush();
  return {text, strings.match()};
}

// By searching every prefix of the text: the match that ends first, the longest of those.
Output expected(const std::vector<std::string>& stops, const std::string& text) {
  for (std::size_t end = 0; end <= text.size(); ++end) {
    const std::string prefix = text.substr(0, end);
    std::optional<std::string> best;
    for (const std::string& stop : stops) {
      if (prefix.ends_with(stop) && (!best || stop.size() > best->size())) best = stop;
    }
    if (best) return {prefix.substr(0, end - best->size()), best};
  }
  return {text, std::nullopt};
}

TEST(StopStrings, WithoutStringsNothingIsHeldBack) {
  StopStrings strings({});
  EXPECT_EQ(strings.push("abc"), "abc");
  EXPECT_EQ(strings.push(""), "");
  EXPECT_EQ(strings.flush(), "");
  EXPECT_FALSE(strings.match());
}

TEST(StopStrings, HoldsBackExactlyWhatMayBecomeOne) {
  StopStrings strings({"END"});
  EXPECT_EQ(strings.push("the E"), "the ");
  EXPECT_EQ(strings.push("N"), "");
  EXPECT_EQ(strings.push(""), "");
  EXPECT_EQ(strings.push("E"), "EN");
  EXPECT_EQ(strings.push("x"), "Ex");
  EXPECT_EQ(strings.push("EN"), "");
  EXPECT_EQ(strings.flush(), "EN");
  EXPECT_FALSE(strings.match());
}

TEST(StopStrings, NothingComesAfterAMatch) {
  StopStrings strings({"\n\n"});
  EXPECT_EQ(strings.push("a\n"), "a");
  EXPECT_EQ(strings.push("\nb"), "");
  EXPECT_EQ(strings.match(), "\n\n");
  EXPECT_EQ(strings.push("c"), "");
  EXPECT_EQ(strings.flush(), "");
}

TEST(StopStrings, OverlapsAndContainedStringsMatchAsASearchFinds) {
  EXPECT_EQ(run({"abcd", "bc"}, {"xabc", "d"}), (Output{"xa", "bc"}));
  EXPECT_EQ(run({"bc", "abc"}, {"xab", "cd"}), (Output{"x", "abc"}));
  EXPECT_EQ(run({"aab"}, {"a", "a", "a", "b"}), (Output{"a", "aab"}));
  EXPECT_EQ(run({"a"}, {"a"}), (Output{"", "a"}));
}

TEST(StopStrings, AnyTextCutAnywhereAgreesWithASearch) {
  std::mt19937 random(7);
  const auto word = [&](std::size_t most) {
    std::string text(1 + random() % most, 'a');
    for (char& c : text) c = static_cast<char>('a' + random() % 2);
    return text;
  };
  int num_matches = 0;
  for (int i = 0; i < 3000; ++i) {
    const std::vector<std::string> stops = {word(5), word(7), word(6)};
    std::vector<std::string> pieces;
    std::string text;
    for (int p = 0; p < 6; ++p) text += pieces.emplace_back(word(3));
    const Output want = expected(stops, text);
    EXPECT_EQ(run(stops, pieces), want);
    num_matches += want.match ? 1 : 0;
  }
  EXPECT_GT(num_matches, 1000);
  EXPECT_LT(num_matches, 2999);
}

TEST(StopStrings, PiecesStayWholeCharactersWhenStringsShareTheirFirstBytes) {
  // U+00E9, U+00E8 and U+20AC, U+20AD: the same first bytes.
  StopStrings strings({"\u00E9!", "\u20AC\u20AC"});
  std::string text;
  for (const std::string_view piece : {"a\u00E8", "\u00E9", "\u20AC", "\u20AD", "\u20AC"}) {
    const std::string part = strings.push(piece);
    EXPECT_EQ(valid_utf8_prefix(part), part.size());
    text += part;
  }
  EXPECT_EQ(text + strings.flush(), "a\u00E8\u00E9\u20AC\u20AD\u20AC");
}

TEST(TextOutput, StopStringAcrossTokensAndIdsThatAreNoTokens) {
  const Tokenizer tokenizer = load_tokenizer(nano_dir());
  const std::vector<TokenId> ids = tokenizer.encode("The lighthouse keeper slept.");
  ASSERT_GT(ids.size(), 2u);
  const auto run_text = [&](const std::vector<std::string>& stops) {
    TextOutput output(&tokenizer, stops);
    std::string text;
    for (const TokenId id : ids) text += output.push(id);
    return text + output.finish();
  };
  EXPECT_EQ(run_text({}), "The lighthouse keeper slept.");
  EXPECT_EQ(run_text({"house keep"}), "The light");
  TextOutput output(&tokenizer, {});
  EXPECT_EQ(output.push(1 << 20), "\uFFFD");
  EXPECT_EQ(output.push(-1), "\uFFFD");
}

TEST(TextOutput, StopStringInWhatTheEndCompletes) {
  const Tokenizer tokenizer = load_tokenizer(nano_dir());
  // The first byte of a character alone becomes U+FFFD at the end.
  const std::vector<TokenId> ids = tokenizer.encode("\U0001F98A");
  ASSERT_GT(ids.size(), 1u);
  TextOutput output(&tokenizer, {"\uFFFD"});
  EXPECT_EQ(output.push(ids[0]), "");
  EXPECT_FALSE(output.stop_string());
  EXPECT_EQ(output.finish(), "");
  EXPECT_EQ(output.stop_string(), "\uFFFD");
}

TEST(TextOutput, WithoutTokenizerThereIsNoText) {
  TextOutput output(nullptr, {});
  EXPECT_EQ(output.push(5), "");
  EXPECT_EQ(output.finish(), "");
}

}  // namespace
}  // namespace dsv4
