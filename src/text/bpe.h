// bpe.h: byte-pair encoding of one piece of text. What a piece is, pretokenizer.h decides.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "dsv4/types.h"

namespace dsv4 {

// Joins the adjacent tokens `left`, `right` into `result`.
struct BpeMerge {
  TokenId left, right, result;
};

// Buffers of encode(), kept between the pieces of one text. Contents mean nothing to the caller.
struct BpeScratch {
  std::vector<TokenId> ids;
  std::vector<std::uint64_t> joins;  // per position: merge of this token with the next
  std::vector<std::uint32_t> next, previous;
  std::vector<std::uint64_t> heap;
};

class Bpe {
 public:
  // `byte_tokens[b]` is the token of the single byte b; `merges` are in order of precedence, the
  // pairs distinct.
  Bpe(const std::array<TokenId, 256>& byte_tokens, std::span<const BpeMerge> merges);

  // Appends the tokens of `piece` to `out`: starting from single bytes, always the pair that comes
  // first in the merge list is joined, the leftmost of several. O(n log n) time, 32 bytes of
  // scratch a byte. `piece` is shorter than 2^32 bytes.
  void encode(std::string_view piece, BpeScratch& scratch, std::vector<TokenId>& out) const;

 private:
  struct Slot {
    std::uint64_t pair, join;
  };

  std::uint64_t find_join(TokenId left, TokenId right) const;
  void insert(TokenId left, TokenId right, std::uint64_t join);
  void encode_short(std::string_view piece, std::vector<TokenId>& out) const;
  void encode_long(std::string_view piece, BpeScratch& scratch, std::vector<TokenId>& out) const;

  std::array<TokenId, 256> byte_tokens_;
  std::vector<Slot> slots_;  // open addressing, at most half full, size a power of two
  int hash_shift_;           // 64 - log2(size)
};

}  // namespace dsv4
