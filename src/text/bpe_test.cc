// bpe_test.cc: both ways of encoding against the definition, written out.
#include "text/bpe.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <random>
#include <string>

namespace dsv4 {
namespace {

struct Vocabulary {
  std::array<TokenId, 256> byte_tokens;
  std::vector<BpeMerge> merges;
};

// Random merges over the bytes a, b, c: results are new tokens, or an old one again (two merges may
// give the same token).
Vocabulary random_vocabulary(std::mt19937& random, int num_merges) {
  Vocabulary vocabulary;
  for (int byte = 0; byte < 256; ++byte) vocabulary.byte_tokens[byte] = byte;
  std::vector<TokenId> tokens = {'a', 'b', 'c'};
  std::map<std::pair<TokenId, TokenId>, bool> seen;
  TokenId next_id = 256;
  for (int i = 0; i < num_merges; ++i) {
    const TokenId left = tokens[random() % tokens.size()], right = tokens[random() % tokens.size()];
    if (!seen.emplace(std::pair(left, right), true).second) continue;
    const bool reuse = next_id > 256 && random() % 8 == 0;
    const TokenId result =
        reuse ? 256 + static_cast<TokenId>(random() % (next_id - 256)) : next_id++;
    if (!reuse) tokens.push_back(result);
    vocabulary.merges.push_back({left, right, result});
  }
  std::shuffle(vocabulary.merges.begin(), vocabulary.merges.end(), random);
  return vocabulary;
}

std::vector<TokenId> encode_ref(const Vocabulary& vocabulary, std::string_view piece) {
  std::vector<TokenId> ids;
  for (char c : piece) ids.push_back(vocabulary.byte_tokens[static_cast<unsigned char>(c)]);
  for (bool joined = true; joined;) {
    joined = false;
    for (const BpeMerge& merge : vocabulary.merges) {
      for (std::size_t i = 0; i + 1 < ids.size() && !joined; ++i) {
        if (ids[i] != merge.left || ids[i + 1] != merge.right) continue;
        ids[i] = merge.result;
        ids.erase(ids.begin() + i + 1);
        joined = true;
      }
      if (joined) break;
    }
  }
  return ids;
}

std::vector<TokenId> encode(const Bpe& bpe, std::string_view piece, BpeScratch& scratch) {
  std::vector<TokenId> ids;
  bpe.encode(piece, scratch, ids);
  return ids;
}

TEST(Bpe, MatchesDefinitionOnBothSidesOfTheShortPieceLimit) {
  std::mt19937 random(7);
  BpeScratch scratch;  // shared: what an earlier piece left must not matter
  for (int round = 0; round < 60; ++round) {
    const Vocabulary vocabulary = random_vocabulary(random, 1 + random() % 60);
    const Bpe bpe(vocabulary.byte_tokens, vocabulary.merges);
    for (std::size_t length : {0, 1, 2, 3, 7, 47, 48, 49, 50, 97, 200}) {
      std::string piece;
      const int num_letters = 1 + random() % 3;
      while (piece.size() < length)
        piece.push_back(static_cast<char>('a' + random() % num_letters));
      ASSERT_EQ(encode(bpe, piece, scratch), encode_ref(vocabulary, piece))
          << "round " << round << ", " << piece;
    }
  }
}

TEST(Bpe, LeftmostOfEqualPairsFirst) {
  Vocabulary vocabulary = {{}, {{'a', 'a', 256}}};
  for (int byte = 0; byte < 256; ++byte) vocabulary.byte_tokens[byte] = byte;
  const Bpe bpe(vocabulary.byte_tokens, vocabulary.merges);
  BpeScratch scratch;
  for (std::size_t length : {3u, 47u, 49u, 51u, 1001u}) {  // odd: the last letter is left over
    std::vector<TokenId> want(length / 2, 256);
    want.push_back('a');
    EXPECT_EQ(encode(bpe, std::string(length, 'a'), scratch), want);
  }
}

TEST(Bpe, NoMergesLeavesBytes) {
  std::array<TokenId, 256> byte_tokens;
  for (int byte = 0; byte < 256; ++byte) byte_tokens[byte] = 255 - byte;
  const Bpe bpe(byte_tokens, {});
  BpeScratch scratch;
  EXPECT_EQ(encode(bpe, std::string("\x00\xFF\x41", 3), scratch),
            (std::vector<TokenId>{255, 0, 190}));
}

}  // namespace
}  // namespace dsv4
