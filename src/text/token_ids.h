// token_ids.h: token ids as people and scripts write them. What the ids mean is tokenizer.h's.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "dsv4/types.h"

namespace dsv4 {

// Token ids separated by spaces, commas or line breaks; brackets around them are allowed. Throws
// Error kBadRequest naming the word that is no id.
std::vector<TokenId> parse_token_ids(std::string_view text);
// The opposite: separated by single spaces.
std::string format_token_ids(const std::vector<TokenId>& ids);

}  // namespace dsv4
