// byte_table.h: the one-to-one map between bytes and the printable code points that stand for them
// in a byte-level vocabulary. Which tokens exist is not known here.
#pragma once

#include <array>
#include <cstdint>

namespace dsv4 {

inline constexpr int kNumByteSymbols = 0x144;  // one past the largest symbol, U+0143

// Bytes that print are themselves; the other 68, in ascending order, are U+0100 .. U+0143.
constexpr bool is_own_symbol(int byte) {
  return (byte >= 0x21 && byte <= 0x7E) || (byte >= 0xA1 && byte <= 0xAC) || byte >= 0xAE;
}

constexpr std::array<std::uint16_t, 256> make_byte_to_symbol() {
  std::array<std::uint16_t, 256> table{};
  int next = 0x100;
  for (int byte = 0; byte < 256; ++byte) {
    table[byte] = static_cast<std::uint16_t>(is_own_symbol(byte) ? byte : next++);
  }
  return table;
}
inline constexpr std::array<std::uint16_t, 256> kByteToSymbol = make_byte_to_symbol();

// The byte of a code point, -1 where the code point is no symbol.
constexpr std::array<std::int16_t, kNumByteSymbols> make_symbol_to_byte() {
  std::array<std::int16_t, kNumByteSymbols> table{};
  for (std::int16_t& byte : table) byte = -1;
  for (int byte = 0; byte < 256; ++byte) {
    table[kByteToSymbol[byte]] = static_cast<std::int16_t>(byte);
  }
  return table;
}
inline constexpr std::array<std::int16_t, kNumByteSymbols> kSymbolToByte = make_symbol_to_byte();

static_assert(kByteToSymbol[' '] == 0x120 && kByteToSymbol['\n'] == 0x10A);
static_assert(kByteToSymbol[0xAD] == kNumByteSymbols - 1);

}  // namespace dsv4
