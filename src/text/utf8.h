// utf8.h: validity of UTF-8 and the replacement of what is invalid. No properties of characters but
// being a control character.
//
// An invalid sequence is cut as Unicode recommends (maximal subparts: a sequence that could have
// begun a character counts as one, any other byte alone); each part becomes one U+FFFD. Python's
// errors="replace", Rust's from_utf8_lossy and browsers do the same.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace dsv4 {

enum class Utf8Kind {
  kCharacter,   // one well-formed character (no surrogates, at most U+10FFFF)
  kInvalid,     // a maximal invalid part
  kIncomplete,  // the text ends inside what may still become a character
};

struct Utf8Unit {
  Utf8Kind kind;
  std::size_t num_bytes;  // 1 .. 4
};

// The first unit of `text`, which is not empty.
Utf8Unit next_utf8(std::string_view text);

// Length of the longest prefix of `text` that is well-formed.
std::size_t valid_utf8_prefix(std::string_view text);

// Appends `text` to `out` with each invalid part as U+FFFD, up to an incomplete tail (at most three
// bytes). Returns the number of bytes of `text` consumed.
std::size_t append_valid_utf8(std::string_view text, std::string& out);

// The same for text that ends here: an incomplete tail is invalid, too.
void append_final_utf8(std::string_view text, std::string& out);

// Untrusted text for a message: at most its first `max_bytes` bytes, invalid parts as U+FFFD, every
// control character, which a terminal would obey, as "?".
std::string printable_utf8(std::string_view text, std::size_t max_bytes);

}  // namespace dsv4
