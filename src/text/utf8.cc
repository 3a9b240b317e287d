// utf8.cc: the table of well-formed byte sequences (Unicode, table 3-7) as code.
#include "text/utf8.h"

#include <cstdint>
#include <cstring>

namespace dsv4 {
namespace {

constexpr std::string_view kReplacement = "\xEF\xBF\xBD";  // U+FFFD

// Bytes that must follow a lead byte, and the range of the first of them; 0 for no lead byte.
struct LeadRule {
  std::size_t num_following;
  std::uint8_t second_min, second_max;
};

LeadRule lead_rule(std::uint8_t lead) {
  if (lead >= 0xC2 && lead <= 0xDF) return {1, 0x80, 0xBF};
  if (lead == 0xE0) return {2, 0xA0, 0xBF};  // shorter forms exist below
  if (lead == 0xED) return {2, 0x80, 0x9F};  // surrogates above
  if (lead >= 0xE1 && lead <= 0xEF) return {2, 0x80, 0xBF};
  if (lead == 0xF0) return {3, 0x90, 0xBF};
  if (lead >= 0xF1 && lead <= 0xF3) return {3, 0x80, 0xBF};
  if (lead == 0xF4) return {3, 0x80, 0x8F};  // U+10FFFF is the last
  return {0, 0, 0};
}

std::size_t ascii_prefix(std::string_view text) {
  constexpr std::uint64_t kHighBits = 0x8080808080808080;
  std::size_t at = 0;
  for (; at + 8 <= text.size(); at += 8) {
    std::uint64_t word;
    std::memcpy(&word, text.data() + at, 8);
    if (word & kHighBits) break;
  }
  while (at < text.size() && static_cast<std::uint8_t>(text[at]) < 0x80) ++at;
  return at;
}

}  // namespace

Utf8Unit next_utf8(std::string_view text) {
  const auto lead = static_cast<std::uint8_t>(text[0]);
  if (lead < 0x80) return {Utf8Kind::kCharacter, 1};
  const LeadRule rule = lead_rule(lead);
  if (rule.num_following == 0) return {Utf8Kind::kInvalid, 1};
  std::uint8_t min = rule.second_min, max = rule.second_max;
  for (std::size_t at = 1; at <= rule.num_following; ++at) {
    if (at == text.size()) return {Utf8Kind::kIncomplete, at};
    const auto byte = static_cast<std::uint8_t>(text[at]);
    if (byte < min || byte > max) return {Utf8Kind::kInvalid, at};
    min = 0x80;
    max = 0xBF;
  }
  return {Utf8Kind::kCharacter, rule.num_following + 1};
}

std::size_t valid_utf8_prefix(std::string_view text) {
  std::size_t at = 0;
  while (true) {
    at += ascii_prefix(text.substr(at));
    if (at == text.size()) return at;
    const Utf8Unit unit = next_utf8(text.substr(at));
    if (unit.kind != Utf8Kind::kCharacter) return at;
    at += unit.num_bytes;
  }
}

std::size_t append_valid_utf8(std::string_view text, std::string& out) {
  std::size_t at = 0;
  while (true) {
    const std::size_t num_valid = valid_utf8_prefix(text.substr(at));
    out.append(text, at, num_valid);
    at += num_valid;
    if (at == text.size()) return at;
    const Utf8Unit unit = next_utf8(text.substr(at));
    if (unit.kind == Utf8Kind::kIncomplete) return at;
    out.append(kReplacement);
    at += unit.num_bytes;
  }
}

void append_final_utf8(std::string_view text, std::string& out) {
  if (append_valid_utf8(text, out) < text.size()) out.append(kReplacement);
}

std::string printable_utf8(std::string_view text, std::size_t max_bytes) {
  std::string valid, printable;
  append_final_utf8(text.substr(0, max_bytes), valid);
  for (std::size_t at = 0; at < valid.size(); ++at) {
    const auto byte = static_cast<std::uint8_t>(valid[at]);
    // U+0080 to U+009F are 0xC2 and a byte below 0xA0.
    const bool is_c1 = byte == 0xC2 && static_cast<std::uint8_t>(valid[at + 1]) < 0xA0;
    printable.push_back(byte < 0x20 || byte == 0x7F || is_c1 ? '?' : valid[at]);
    if (is_c1) ++at;
  }
  return printable;
}

}  // namespace dsv4
