// chat_prompt.cc: concatenation, and the check that the marks will be tokens.
#include "text/chat_prompt.h"

#include "text/chat_marks.h"

namespace dsv4 {

std::string render_single_turn(const SingleTurn& turn) {
  std::string prompt;
  for (std::string_view part : {kBosMark, turn.system, kUserMark, turn.user, kAssistantMark,
                                turn.thinking ? kThinkMark : kEndThinkMark}) {
    prompt += part;
  }
  return prompt;
}

std::vector<TokenId> encode_single_turn(const Tokenizer& tokenizer, const SingleTurn& turn) {
  find_chat_marks(tokenizer);  // for its errors: the prompt is text, and encode() finds them itself
  return tokenizer.encode(render_single_turn(turn));
}

}  // namespace dsv4
