// text_file.h: the tokens of a text file of any size, piece by piece, in bounded memory.
#pragma once

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "text/tokenizer.h"

namespace dsv4 {

// Each piece is tokenised by itself. It ends after a line break whose next character is no white
// space, where V4's tokenizer never joins text; so the tokens are those of the whole file, unless
// such breaks are farther apart than a piece is long: then a token may be cut, never a character.
class TextFileTokens {
 public:
  static constexpr std::int64_t kPieceBytes = std::int64_t{1} << 20;

  // `tokenizer` must outlive it. Throws Error: kNotFound, kIo.
  TextFileTokens(const Tokenizer& tokenizer, const std::filesystem::path& path,
                 std::int64_t piece_bytes = kPieceBytes);

  // The tokens of the next piece; none after the last. Throws Error kIo.
  std::vector<TokenId> next();

  std::int64_t bytes_read() const { return bytes_read_; }  // of the pieces given out
  std::int64_t size_bytes() const { return size_bytes_; }  // 0 where it is not known: a pipe

 private:
  void fill();

  const Tokenizer& tokenizer_;
  std::filesystem::path path_;
  std::ifstream file_;
  std::size_t piece_bytes_;
  std::string text_;  // read and not given out
  std::int64_t bytes_read_ = 0, size_bytes_ = 0;
};

}  // namespace dsv4
