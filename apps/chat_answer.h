// chat_answer.h: one answer of a model, shown while it is written, until it ends or Ctrl-C ends it.
#pragma once

#include <cstdint>
#include <optional>

#include "dsv4/engine.h"
#include "text/chat_parse.h"
#include "text/tool_arguments.h"

namespace dsv4 {

struct ChatAnswer {
  FinishReason reason = FinishReason::kStop;
  std::optional<ErrorEvent> error;  // instead of a reason
  Completion completion;            // what was said
  bool dropped_calls = false;       // tool calls that had begun when the answer was cut
  Usage usage;
  Timings timings;

  bool is_cut() const { return error || reason != FinishReason::kStop; }
  bool says_nothing() const;
};

// Runs `request`, the prompt of a conversation. An interrupt (chat_signals.h) cancels it and is
// left to be taken. `shows_progress`: with a bar while a long prompt is read. Throws what
// Engine::submit throws, and OutputClosed.
ChatAnswer stream_answer(Engine& engine, const Request& request, bool thinking,
                         const ToolParameters& tools, bool shows_progress);

}  // namespace dsv4
