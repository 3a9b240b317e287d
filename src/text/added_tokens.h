// added_tokens.h: finds the added tokens (marks) in raw text. What lies between is
// pretokenizer.h's.
#pragma once

#include <array>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "dsv4/types.h"

namespace dsv4 {

struct AddedToken {
  TokenId id;
  std::string content;  // not empty
  bool special;
};

class AddedTokens {
 public:
  // Contents are distinct.
  explicit AddedTokens(std::vector<AddedToken> tokens);

  struct Match {
    std::size_t begin, end;  // both the text's size when there is none
    TokenId id;
  };
  // The leftmost added token in `text` at or after `from`; the longest of several that begin there.
  Match find(std::string_view text, std::size_t from) const;

  // The one with exactly this content.
  std::optional<TokenId> id_of(std::string_view content) const;

 private:
  std::vector<AddedToken> tokens_;  // ascending by content
  std::array<bool, 256> begins_{};  // by first byte
};

}  // namespace dsv4
