#include "runtime/text_file.h"

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "base/error.h"
#include "text/utf8.h"

namespace dsv4 {
namespace {

bool is_space(char c) { return c == ' ' || (c >= '\t' && c <= '\r'); }

// Where a full piece ends: after the last line break that white space does not follow, else before
// a character that the piece cuts. In 1 .. text.size().
std::size_t end_of_piece(const std::string& text) {
  for (std::size_t end = text.size() - 1; end > 0; --end) {
    if (text[end - 1] == '\n' && !is_space(text[end])) return end;
  }
  constexpr std::size_t kMostBytes = 4;  // of a character
  for (std::size_t size = 1; size < std::min(kMostBytes, text.size()); ++size) {
    const std::size_t begin = text.size() - size;
    if ((static_cast<unsigned char>(text[begin]) & 0xC0) == 0x80) continue;  // not a first byte
    const bool is_cut =
        next_utf8(std::string_view(text).substr(begin)).kind == Utf8Kind::kIncomplete;
    return is_cut ? begin : text.size();
  }
  return text.size();
}

}  // namespace

TextFileTokens::TextFileTokens(const Tokenizer& tokenizer, const std::filesystem::path& path,
                               std::int64_t piece_bytes)
    : tokenizer_(tokenizer),
      path_(path),
      file_(path, std::ios::binary),
      piece_bytes_(static_cast<std::size_t>(std::max<std::int64_t>(piece_bytes, 4))) {
  if (!file_) {
    const int error = errno;
    fail(error == ENOENT ? ErrorCode::kNotFound : ErrorCode::kIo, "cannot open {}: {}",
         path.string(), std::strerror(error));
  }
  std::error_code ignored;
  if (std::filesystem::is_regular_file(path, ignored)) {
    const auto size = std::filesystem::file_size(path, ignored);
    if (!ignored) size_bytes_ = static_cast<std::int64_t>(size);
  }
}

std::vector<TokenId> TextFileTokens::next() {
  fill();
  if (text_.empty()) return {};
  const bool is_full = text_.size() == piece_bytes_;
  const std::size_t end = is_full ? end_of_piece(text_) : text_.size();
  std::vector<TokenId> tokens = tokenizer_.encode(std::string_view(text_).substr(0, end));
  text_.erase(0, end);
  bytes_read_ += static_cast<std::int64_t>(end);
  return tokens;
}

void TextFileTokens::fill() {
  const std::size_t had = text_.size();
  text_.resize(piece_bytes_);
  file_.read(text_.data() + had, static_cast<std::streamsize>(piece_bytes_ - had));
  text_.resize(had + static_cast<std::size_t>(file_.gcount()));
  require(!file_.bad(), ErrorCode::kIo, "cannot read {}", path_.string());
}

}  // namespace dsv4
