// pretokenizer_test.cc: what the patterns cut, what they may say, and how bad ones end.
#include "text/pretokenizer.h"

#include <gtest/gtest.h>

#include "dsv4/error.h"
#include "text/pattern.h"

namespace dsv4 {
namespace {

using Pieces = std::vector<std::string>;

Pieces pieces_of(const std::vector<std::string>& patterns, std::string_view text) {
  const Pretokenizer pretokenizer(patterns, "test");
  Pretokenizer::Run run(pretokenizer, split_time_limit(text.size()));
  Pieces pieces;
  run.split(text, [&](std::string_view piece) { pieces.emplace_back(piece); });
  return pieces;
}

template <class Function>
void expect_error(ErrorCode code, std::string_view part, Function&& function) {
  try {
    function();
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), code) << e.what();
    EXPECT_NE(std::string_view(e.what()).find(part), std::string_view::npos) << e.what();
    return;
  }
  ADD_FAILURE() << "no error; wanted one with: " << part;
}

TEST(Pretokenizer, MatchesAndGapsInOrder) {
  EXPECT_EQ(pieces_of({"b+"}, "aabbcb"), (Pieces{"aa", "bb", "c", "b"}));
  EXPECT_EQ(pieces_of({"b+"}, "b"), (Pieces{"b"}));
  EXPECT_EQ(pieces_of({"b+"}, "aac"), (Pieces{"aac"}));
  EXPECT_EQ(pieces_of({"b+"}, ""), (Pieces{}));
  EXPECT_EQ(pieces_of({}, "abc"), (Pieces{"abc"}));
}

TEST(Pretokenizer, EachSplitSeesOnePieceOnly) {
  // The lookahead succeeds at the end of " ", although a digit follows in the text.
  EXPECT_EQ(pieces_of({"\\p{N}", "\\s+(?!\\S)|x+"}, "xx  1"), (Pieces{"xx", "  ", "1"}));
  EXPECT_EQ(pieces_of({"\\s+(?!\\S)|x+"}, "xx  1"), (Pieces{"xx", " ", " 1"}));
}

TEST(Pretokenizer, SpacesAreWhiteSpaceOfUnicode) {
  for (const char* space : {"\t", "\n", "\v", "\f", "\r", " ", "\u0085", "\u00A0", "\u1680",
                            "\u2000", "\u200A", "\u2028", "\u2029", "\u202F", "\u205F", "\u3000"}) {
    const std::string text = std::string("a") + space + "b";
    const Pieces cut = {"a", space, "b"};
    EXPECT_EQ(pieces_of({"\\s"}, text), cut);
    EXPECT_EQ(pieces_of({"[^a\\S]"}, text), cut);
    EXPECT_EQ(pieces_of({"[x\\s]"}, text), cut);
    EXPECT_EQ(pieces_of({"\\S"}, space), Pieces{space});
    EXPECT_EQ(pieces_of({"[\\S]"}, text), (Pieces{"a", space, "b"}));
  }
  // U+180E is a space in PCRE2 and in no recent Unicode; the others only look like spaces.
  for (const char* other : {"\u180E", "\u200B", "\u2060", "\uFEFF", "\x1F", "\x08", "\x0E"}) {
    const std::string text = std::string("a") + other + "b";
    EXPECT_EQ(pieces_of({"\\s"}, text), Pieces{text});
    EXPECT_EQ(pieces_of({"[^\\S]"}, text), Pieces{text});
    EXPECT_EQ(pieces_of({"[^\\s]+"}, " " + text), (Pieces{" ", text}));
  }
}

TEST(Pattern, EscapesAndClassesAreKeptApart) {
  EXPECT_EQ(to_pcre2("\\\\s", "p"), "\\\\s");  // a backslash and the letter s
  EXPECT_EQ(to_pcre2("[\\[\\]\\-s]", "p"), "[\\[\\]\\-s]");
  EXPECT_EQ(to_pcre2("[a-z-]", "p"), "[a-z-]");
  EXPECT_EQ(to_pcre2("[-a]", "p"), "[-a]");
  EXPECT_EQ(to_pcre2("\\v", "p"), "\\x{b}");
  EXPECT_EQ(to_pcre2("a{1,3}\\}", "p"), "a{1,3}\\}");
  EXPECT_EQ(to_pcre2("", "p"), "");
}

TEST(Pattern, RefusesWhatTheEnginesReadDifferently) {
  for (const char* pattern :
       {"\\h",     "\\w",         "\\b",     "\\K",   "\\C",     "\\1",  "\\x41", "\\",
        "[a&&b]",  "[[:alpha:]]", "[a[b]]",  "[]a]",  "[a",      "[",    "[\\",   "[a-\\s]",
        "[\\s-a]", "[\\p{L}-z]",  "(*UTF)a", "(?i)a", "(?<=a)b", "(?R)", "(?",    "^a",
        "a$",      "{",           "a{,3}",   "a{1,2", "a{2}+",   "\\pL", "\\p{L"}) {
    SCOPED_TRACE(pattern);
    expect_error(ErrorCode::kUnsupported, "p: ", [&] { to_pcre2(pattern, "p"); });
  }
}

TEST(Pretokenizer, RefusesPatternsThatDoNotCompileOrMatchNothing) {
  for (const char* pattern :
       {"a)", "(", "a**b)", "\\p{Nonsense}", "[z-a]", "a{3,2}", "a*", "a|", "(?=a)"}) {
    SCOPED_TRACE(pattern);
    expect_error(ErrorCode::kBadCheckpoint, "test: split 1", [&] {
      Pretokenizer({"x", pattern}, "test");
    });
  }
  expect_error(ErrorCode::kBadCheckpoint, "of \"(??aaa",  // no control characters in messages
               [] { Pretokenizer({"(\x1b\x7f" + std::string(1000, 'a')}, "test"); });
  expect_error(ErrorCode::kUnsupported, "at most",
               [] { Pretokenizer({std::string(5000, 'a')}, "test"); });
  expect_error(ErrorCode::kUnsupported, "at most",
               [] { Pretokenizer(std::vector<std::string>(17, "a"), "test"); });
}

TEST(Pretokenizer, ExplosivePatternEndsInAnError) {
  const std::string text(4000, 'a');
  for (const char* pattern : {"(a+)+[bc]", "(a|aa)+[bc]"}) {
    expect_error(ErrorCode::kUnsupported, "backtracks too much",
                 [&] { pieces_of({pattern}, text); });
  }
}

TEST(Pretokenizer, PatternThatIsSlowEverywhereMeetsTheClock) {
  // Quadratic, but below the step limit at each start.
  const Pretokenizer pretokenizer({"a+[bc]"}, "test");
  Pretokenizer::Run run(pretokenizer, std::chrono::milliseconds(1));
  expect_error(ErrorCode::kUnsupported, "takes too long",
               [&] { run.split(std::string(1 << 17, 'a'), [](std::string_view) {}); });
}

TEST(Pretokenizer, DeepRecursionNeedsNoStack) {
  const std::string text(1 << 20, 'a');
  try {
    EXPECT_EQ(pieces_of({"(?:a|b)+"}, text), Pieces{text});
    EXPECT_EQ(pieces_of({"(?:(a)|b)+"}, text), Pieces{text});
  } catch (const Error& e) {  // an honest end, too
    EXPECT_EQ(e.code(), ErrorCode::kUnsupported) << e.what();
  }
}

TEST(Pretokenizer, LongGapsAreSearchedToTheirEnd) {
  // Longer than any window between two looks at the clock, with multi-byte characters on its edges.
  std::string gap;
  while (gap.size() < (3u << 20)) gap += "\u00E9\u4F60z";
  EXPECT_EQ(pieces_of({"y+"}, gap + "y" + gap), (Pieces{gap, "y", gap}));
}

}  // namespace
}  // namespace dsv4
