// bpe.cc: short pieces (nearly all words) by scanning an array, long ones with a heap over a linked
// list; both give the same tokens.
#include "text/bpe.h"

#include <algorithm>
#include <bit>
#include <functional>
#include <limits>

#include "base/check.h"

namespace dsv4 {
namespace {

// A join is a merge's place in the list above its result, so that joins compare by precedence.
constexpr std::uint64_t kNoJoin = std::numeric_limits<std::uint64_t>::max();
constexpr std::uint64_t kNoPair =
    std::numeric_limits<std::uint64_t>::max();  // ids are not negative

// Scanning is quadratic; up to here it beats the heap.
constexpr std::size_t kShortPiece = 48;

std::uint64_t pair_key(TokenId left, TokenId right) {
  return std::uint64_t{static_cast<std::uint32_t>(left)} << 32 | static_cast<std::uint32_t>(right);
}
std::uint32_t precedence(std::uint64_t join) { return static_cast<std::uint32_t>(join >> 32); }
TokenId result(std::uint64_t join) { return static_cast<TokenId>(join & 0xFFFFFFFF); }

}  // namespace

Bpe::Bpe(const std::array<TokenId, 256>& byte_tokens, std::span<const BpeMerge> merges)
    : byte_tokens_(byte_tokens) {
  const std::size_t size = std::bit_ceil(2 * merges.size() + 2);
  hash_shift_ = 64 - std::countr_zero(size);
  slots_.assign(size, Slot{kNoPair, kNoJoin});
  for (std::size_t i = 0; i < merges.size(); ++i) {
    insert(merges[i].left, merges[i].right,
           std::uint64_t{i} << 32 | static_cast<std::uint32_t>(merges[i].result));
  }
}

void Bpe::insert(TokenId left, TokenId right, std::uint64_t join) {
  const std::uint64_t pair = pair_key(left, right);
  std::size_t at = pair * 0x9E3779B97F4A7C15u >> hash_shift_;
  while (slots_[at].pair != kNoPair) {
    DSV4_CHECK(slots_[at].pair != pair, "merge {} {} stands twice", left, right);
    at = (at + 1) & (slots_.size() - 1);
  }
  slots_[at] = {pair, join};
}

std::uint64_t Bpe::find_join(TokenId left, TokenId right) const {
  const std::uint64_t pair = pair_key(left, right);
  std::size_t at = pair * 0x9E3779B97F4A7C15u >> hash_shift_;
  while (slots_[at].pair != pair) {
    if (slots_[at].pair == kNoPair) return kNoJoin;
    at = (at + 1) & (slots_.size() - 1);
  }
  return slots_[at].join;
}

void Bpe::encode(std::string_view piece, BpeScratch& scratch, std::vector<TokenId>& out) const {
  DSV4_CHECK(piece.size() < std::numeric_limits<std::uint32_t>::max());
  if (piece.size() <= kShortPiece) {
    encode_short(piece, out);
  } else {
    encode_long(piece, scratch, out);
  }
}

void Bpe::encode_short(std::string_view piece, std::vector<TokenId>& out) const {
  TokenId ids[kShortPiece];
  std::uint64_t joins[kShortPiece];  // joins[i]: of ids[i] and ids[i + 1]
  std::size_t count = piece.size();
  for (std::size_t i = 0; i < count; ++i) {
    ids[i] = byte_tokens_[static_cast<std::uint8_t>(piece[i])];
    if (i > 0) joins[i - 1] = find_join(ids[i - 1], ids[i]);
  }
  while (count > 1) {
    const std::size_t at =
        std::min_element(joins, joins + count - 1) - joins;  // the first of equals
    if (joins[at] == kNoJoin) break;
    ids[at] = result(joins[at]);
    std::copy(ids + at + 2, ids + count, ids + at + 1);
    std::copy(joins + at + 1, joins + count - 1, joins + at);
    --count;
    if (at > 0) joins[at - 1] = find_join(ids[at - 1], ids[at]);
    if (at + 1 < count) joins[at] = find_join(ids[at], ids[at + 1]);
  }
  out.insert(out.end(), ids, ids + count);
}

void Bpe::encode_long(std::string_view piece, BpeScratch& scratch,
                      std::vector<TokenId>& out) const {
  const auto count = static_cast<std::uint32_t>(piece.size());
  std::vector<TokenId>& ids = scratch.ids;
  std::vector<std::uint64_t>& joins = scratch.joins;
  std::vector<std::uint32_t>& next = scratch.next;
  std::vector<std::uint32_t>& previous = scratch.previous;
  std::vector<std::uint64_t>& heap = scratch.heap;
  ids.resize(count);
  joins.assign(count, kNoJoin);
  next.resize(count);
  previous.resize(count);
  heap.clear();
  // A heap entry is precedence above position. It is stale when the join at that position is no
  // longer the one of that precedence; an entry that stands twice is stale the second time.
  const auto entry = [](std::uint64_t join, std::uint32_t at) {
    return std::uint64_t{precedence(join)} << 32 | at;
  };
  for (std::uint32_t i = 0; i < count; ++i) {
    ids[i] = byte_tokens_[static_cast<std::uint8_t>(piece[i])];
    next[i] = i + 1;
    previous[i] = i - 1;  // wraps at 0; never followed there
    if (i == 0) continue;
    joins[i - 1] = find_join(ids[i - 1], ids[i]);
    if (joins[i - 1] != kNoJoin) heap.push_back(entry(joins[i - 1], i - 1));
  }
  const auto refresh = [&](std::uint32_t left, std::uint32_t right) {
    joins[left] = find_join(ids[left], ids[right]);
    if (joins[left] == kNoJoin) return;
    heap.push_back(entry(joins[left], left));
    std::push_heap(heap.begin(), heap.end(), std::greater<>());
  };
  std::make_heap(heap.begin(), heap.end(), std::greater<>());
  while (!heap.empty()) {
    const std::uint64_t top = heap.front();
    std::pop_heap(heap.begin(), heap.end(), std::greater<>());
    heap.pop_back();
    const auto at = static_cast<std::uint32_t>(top & 0xFFFFFFFF);
    if (joins[at] == kNoJoin || entry(joins[at], at) != top) continue;
    const std::uint32_t right = next[at];
    ids[at] = result(joins[at]);
    joins[at] = joins[right] = kNoJoin;
    next[at] = next[right];
    if (next[at] < count) {
      previous[next[at]] = at;
      refresh(at, next[at]);
    }
    if (at > 0) refresh(previous[at], at);
  }
  for (std::uint32_t i = 0; i < count; i = next[i]) out.push_back(ids[i]);
}

}  // namespace dsv4
