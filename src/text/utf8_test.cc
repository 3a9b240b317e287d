// utf8_test.cc: what is a character, and how what is none is cut.
#include "text/utf8.h"

#include <gtest/gtest.h>

#include <random>

namespace dsv4 {
namespace {

// Encodes any 21-bit number by the bit layout alone, surrogates included.
std::string by_bit_layout(std::uint32_t code_point) {
  const auto tail = [&](int shift) {
    return static_cast<char>(0x80 | (code_point >> shift & 0x3F));
  };
  if (code_point < 0x80) return {static_cast<char>(code_point)};
  if (code_point < 0x800) return {static_cast<char>(0xC0 | code_point >> 6), tail(0)};
  if (code_point < 0x10000) return {static_cast<char>(0xE0 | code_point >> 12), tail(6), tail(0)};
  return {static_cast<char>(0xF0 | code_point >> 18), tail(12), tail(6), tail(0)};
}

std::string repaired(std::string_view text) {
  std::string out;
  append_final_utf8(text, out);
  return out;
}

TEST(Utf8, ExactlyTheScalarValuesAreCharacters) {
  for (std::uint32_t code_point = 0; code_point < 0x200000; ++code_point) {
    const std::string text = by_bit_layout(code_point);
    const bool scalar = code_point <= 0x10FFFF && !(code_point >= 0xD800 && code_point <= 0xDFFF);
    ASSERT_EQ(valid_utf8_prefix(text) == text.size(), scalar) << std::hex << code_point;
  }
}

TEST(Utf8, OverlongFormsAreInvalid) {
  for (const char* text :
       {"\xC0\x80", "\xC1\xBF", "\xE0\x80\x80", "\xE0\x9F\xBF", "\xF0\x8F\xBF\xBF"}) {
    EXPECT_EQ(valid_utf8_prefix(text), 0u);
  }
}

// Unicode 15, section 3.9, tables 3-8 to 3-11.
TEST(Utf8, MaximalSubpartsAsUnicodeTabulatesThem) {
  const std::string r = "\uFFFD";
  EXPECT_EQ(repaired("\xC0\xAF\xE0\x80\xBF\xF0\x81\x82"
                     "A"),
            r + r + r + r + r + r + r + r + "A");
  EXPECT_EQ(repaired("\xED\xA0\x80\xED\xBF\xBF\xED\xAF"
                     "A"),
            r + r + r + r + r + r + r + r + "A");
  EXPECT_EQ(repaired("\xF4\x91\x92\x93\xFF"
                     "A\x80\xBF"
                     "B"),
            r + r + r + r + r + "A" + r + r + "B");
  EXPECT_EQ(repaired("\xE1\x80\xE2\xF0\x91\x92\xF1\xBF"
                     "A"),
            r + r + r + r + "A");
}

TEST(Utf8, TruncatedEndsAreOneReplacement) {
  const std::string r = "\uFFFD";
  for (const char* text : {"\xC3", "\xE4", "\xE4\xBD", "\xF0", "\xF0\x9F", "\xF0\x9F\x8C"}) {
    EXPECT_EQ(repaired(std::string("ab") + text), "ab" + r);
    std::string out;
    EXPECT_EQ(append_valid_utf8(std::string("ab") + text, out), 2u);
    EXPECT_EQ(out, "ab");
  }
}

TEST(Utf8, ResultIsValidAndValidTextIsUntouched) {
  std::mt19937 random(1);
  const unsigned char bytes[] = {'a',  0,    0x7F, 0x80, 0xBF, 0xC2, 0xE0, 0xA0,
                                 0xED, 0x9F, 0xF0, 0x90, 0xF4, 0x8F, 0xFF};
  for (int round = 0; round < 20000; ++round) {
    std::string text;
    for (int i = random() % 24; i > 0; --i)
      text.push_back(static_cast<char>(bytes[random() % sizeof(bytes)]));
    const std::string out = repaired(text);
    ASSERT_EQ(valid_utf8_prefix(out), out.size());
    ASSERT_EQ(repaired(out), out);
  }
}

TEST(Utf8, MessagesHoldNoControlCharactersAndNoHalfCharacters) {
  EXPECT_EQ(printable_utf8("a\n\x1b[31m\x7f\xC2\x9B\xC2\xA0", 100), "a??[31m??\xC2\xA0");
  EXPECT_EQ(printable_utf8("\xE2\x82\xAC", 3), "\xE2\x82\xAC");
  EXPECT_EQ(printable_utf8("\xE2\x82\xAC", 2), "\xEF\xBF\xBD");
  EXPECT_EQ(printable_utf8("\xC2\x9B", 1), "\xEF\xBF\xBD");
  EXPECT_EQ(printable_utf8(std::string_view("\0b", 2), 1), "?");
  EXPECT_EQ(printable_utf8("ab", 0), "");
}

TEST(Utf8, EmptyText) {
  EXPECT_EQ(valid_utf8_prefix(""), 0u);
  EXPECT_EQ(repaired(""), "");
}

}  // namespace
}  // namespace dsv4
