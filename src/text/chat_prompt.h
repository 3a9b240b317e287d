// chat_prompt.h: the prompt of one user message. Conversations, tools and tasks are not built here.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "text/tokenizer.h"

namespace dsv4 {

struct SingleTurn {
  std::string_view user;
  std::string_view system = {};  // printed before the user mark; empty: none
  bool thinking = false;
};

// BOS system USER user ASSISTANT, then <think> or, without thinking, </think>. Marks inside the
// texts are not escaped: V4 has no escape, so a caller who distrusts them must refuse them.
std::string render_single_turn(const SingleTurn& turn);

// Token ids of render_single_turn. Throws Error: kBadCheckpoint when the tokenizer lacks a mark
// (it would be spelled out in ordinary tokens), and what Tokenizer::encode throws.
std::vector<TokenId> encode_single_turn(const Tokenizer& tokenizer, const SingleTurn& turn);

}  // namespace dsv4
