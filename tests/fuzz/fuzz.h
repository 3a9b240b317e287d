// fuzz.h: what the fuzz targets share: their entry, the check of an invariant, and the rule that
// untrusted input may end in nothing but dsv4::Error. What holds for an input is each target's.
//
// The same targets run under libFuzzer (preset fuzz) and, over the committed inputs, as ordinary
// tests (replay_main.cc).
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string_view>

#include "dsv4/error.h"
#include "testing/check_message.h"
#include "text/utf8.h"

// A target's entry, called by libFuzzer and by the replay. Returns 0.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size);

// Aborts with the place and the condition: libFuzzer keeps the input, the replay has named it.
#define FUZZ_CHECK(condition)                                                      \
  do {                                                                             \
    if (!(condition)) {                                                            \
      std::fprintf(stderr, "%s:%d: broken: %s\n", __FILE__, __LINE__, #condition); \
      std::abort();                                                                \
    }                                                                              \
  } while (false)

namespace dsv4::fuzz {

// A broken invariant of the library says which it is before the process ends.
inline const CheckMessages check_messages;

inline std::string_view as_text(const std::uint8_t* data, std::size_t size) {
  return {reinterpret_cast<const char*>(data), size};
}

// Takes a number off the front of `text`; 0 when nothing is left.
inline std::uint8_t take_byte(std::string_view& text) {
  if (text.empty()) return 0;
  const auto byte = static_cast<std::uint8_t>(text.front());
  text.remove_prefix(1);
  return byte;
}

// Takes what stands before the first `separator`, and the separator; all of it without one.
inline std::string_view take_part(std::string_view& text, std::string_view separator) {
  const std::size_t at = text.find(separator);
  const std::string_view part = text.substr(0, at);
  text.remove_prefix(at == std::string_view::npos ? text.size() : at + separator.size());
  return part;
}

// Messages go to terminals and into JSON answers: short, UTF-8, no control characters, whatever
// the input was.
inline void check_message(std::string_view message) {
  constexpr std::size_t kMaxMessageBytes = 2000;
  FUZZ_CHECK(!message.empty());
  FUZZ_CHECK(message.size() <= kMaxMessageBytes);
  FUZZ_CHECK(valid_utf8_prefix(message) == message.size());
  for (const char c : message) FUZZ_CHECK(static_cast<unsigned char>(c) >= 0x20 && c != 0x7f);
  // U+0080 to U+009F, which terminals obey, too.
  for (std::size_t i = 1; i < message.size(); ++i) {
    FUZZ_CHECK(message[i - 1] != '\xC2' || static_cast<unsigned char>(message[i]) >= 0xA0);
  }
}

// Whether `call` returned; false when it threw Error. Any other exception passes and ends the run.
template <class Call>
bool accepted(Call&& call) {
  try {
    call();
    return true;
  } catch (const Error& error) {
    check_message(error.what());
    return false;
  }
}

}  // namespace dsv4::fuzz
