// text_file_test.cc: a text in pieces gives the tokens of the whole, and no piece is larger than
// was allowed.
#include "runtime/text_file.h"

#include <gtest/gtest.h>

#include "runtime/nano_model.h"
#include "testing/golden_copy.h"

namespace dsv4 {
namespace {

const Tokenizer& tokenizer() {
  static const Tokenizer tokenizer = load_tokenizer(nano_dir());
  return tokenizer;
}

class TextFile : public testing::Test {
 protected:
  std::filesystem::path write(const std::string& text) {
    const auto path = folder_.path() / "text";
    std::ofstream(path, std::ios::binary) << text;
    return path;
  }
  // All pieces, joined.
  std::vector<TokenId> read(const std::string& text, std::int64_t piece_bytes) {
    TextFileTokens file(tokenizer(), write(text), piece_bytes);
    std::vector<TokenId> all;
    for (auto part = file.next(); !part.empty(); part = file.next()) {
      EXPECT_LE(file.bytes_read(), file.size_bytes());
      all.insert(all.end(), part.begin(), part.end());
      largest_piece_ = std::max(largest_piece_, std::ssize(part));
    }
    EXPECT_EQ(file.bytes_read(), static_cast<std::int64_t>(text.size()));
    EXPECT_TRUE(file.next().empty());
    return all;
  }

  TestFolder folder_;
  std::ptrdiff_t largest_piece_ = 0;  // tokens
};

TEST_F(TextFile, PiecesGiveTheTokensOfTheWhole) {
  const std::string text = read_nano_file("held_out.txt").substr(0, 20000);
  const std::vector<TokenId> whole = tokenizer().encode(text);
  const auto size = static_cast<std::int64_t>(text.size());
  for (const std::int64_t piece :
       {std::int64_t{4096}, std::int64_t{7000}, size - 1, size, size + 1})
    EXPECT_EQ(read(text, piece), whole) << piece;
}

// Cut at any of its line breaks, the white space would become other tokens.
TEST_F(TextFile, WhiteSpaceAtABreakStaysTogether) {
  std::string text;
  for (int i = 0; i < 20; ++i) text += "alpha beta\ngamma\n\n\n   delta epsilon\n \n";
  const std::vector<TokenId> whole = tokenizer().encode(text);
  for (std::int64_t piece = 40; piece < 120; ++piece) EXPECT_EQ(read(text, piece), whole) << piece;
}

// A line longer than a piece is cut between characters, so the bytes stay.
TEST_F(TextFile, LongLinesAreCutBetweenCharacters) {
  std::string text;
  for (int i = 0; i < 40; ++i) text += "a\u00e9\u20ac\U0001F600";
  for (std::int64_t piece = 4; piece < 24; ++piece) {
    largest_piece_ = 0;
    EXPECT_EQ(tokenizer().decode(read(text, piece)), text) << piece;
    EXPECT_LE(largest_piece_, piece);  // a token has a byte at least
  }
}

// What is no UTF-8 anywhere must not stop the reading.
TEST_F(TextFile, InvalidBytesAreReplacedOneByOne) {
  const std::string text(37, '\x80');
  std::string replaced;
  for (int i = 0; i < 37; ++i) replaced += "\uFFFD";
  for (const std::int64_t piece : {4, 5, 7, 36, 37, 38})
    EXPECT_EQ(tokenizer().decode(read(text, piece)), replaced) << piece;
}

TEST_F(TextFile, EmptyAndMissingFiles) {
  EXPECT_TRUE(read("", 16).empty());
  const auto missing = folder_.path() / "missing";
  EXPECT_EQ(error_of([&] { TextFileTokens(tokenizer(), missing); }), name_of(ErrorCode::kNotFound));
  EXPECT_EQ(error_of([&] { TextFileTokens(tokenizer(), folder_.path()).next(); }),
            name_of(ErrorCode::kIo));
}

}  // namespace
}  // namespace dsv4
