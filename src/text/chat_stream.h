// chat_stream.h: a completion taken apart while it is being written. What the whole text means is
// chat_parse.h's; this gives the same, in pieces, as early as they are certain.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <unordered_set>
#include <vector>

#include "text/chat_parse.h"
#include "text/find_either.h"
#include "text/tool_arguments.h"

namespace dsv4 {

// A piece of the answer. Texts are whole characters and never part of a mark.
struct CompletionDelta {
  enum class Kind {
    kReasoning,
    kContent,
    kToolCall,         // more of a call's arguments; the first delta of a call has its name
    kToolCallsVoided,  // all tool calls so far: their markup is damaged and follows as content
  };
  Kind kind;
  std::size_t call_idx = 0;  // of kToolCall, ascending from 0
  std::string name = {};
  std::string text = {};
};

// Parses one completion. Joined, its deltas are what finish() returns, and that is parse_lenient of
// the whole text. Pieces may end anywhere, inside a character, too.
//
// Held back are a tail that may begin a mark or a closing tag, a tool call's head, and the
// arguments of a call whose first parameter may be a wrapper (see ToolParameters).
class CompletionStreamParser {
 public:
  // `tools`, if not null, must outlive the parser; then wrapped arguments are unwrapped.
  explicit CompletionStreamParser(bool thinking, const ToolParameters* tools = nullptr);

  std::vector<CompletionDelta> push(std::string_view text);

  // The end of the text. Appends the last deltas to `deltas`. The parser is used up.
  Completion finish(std::vector<CompletionDelta>& deltas);

 private:
  enum class State {
    kReasoning,
    kContent,
    kDone,  // after EOS
    kRaw,   // content to the end, whatever it contains: strict parsing has failed
    kBetweenCalls,
    kInvokeHead,
    kParameterName,
    kParameterKey,
    kParameterValue,
    kAfterParameter,
    kAfterCalls,
  };
  enum class Match { kNo, kPartial, kFull };

  std::string_view rest() const { return std::string_view(text_).substr(pos_); }
  // Each goes on as far as the text is certain; false: more text is needed.
  bool step();
  bool step_reasoning();
  bool step_content();
  bool step_done();
  bool step_raw();
  bool step_between_calls();
  bool step_invoke_head();
  bool step_parameter_name();
  bool step_parameter_key();
  bool step_parameter_value();
  bool step_after_parameter();
  bool step_after_calls();

  // Whether rest() begins with the two pieces, or may once there is more of it.
  Match match(std::string_view piece_a, std::string_view piece_b) const;
  // The first of two pieces in rest(); npos if neither is there yet.
  EitherPiece find(std::string_view piece_a, std::string_view piece_b) const;
  void note_searched();
  void advance(std::size_t num_bytes, State state);
  // Emits the first bytes of rest() as reasoning or content and goes past them.
  void emit_text(CompletionDelta::Kind kind, std::size_t num_bytes);
  void emit(CompletionDelta::Kind kind, std::string_view text);
  void emit_value(std::string_view text);
  void emit_arguments(std::string_view text);
  void release_arguments();
  void begin_call(std::string_view name);
  void end_call();
  // Damaged tool calls or text after EOS: everything from raw_begin_ on is content. True.
  bool fail();

  const bool thinking_;
  const ToolParameters* const tools_;
  std::string text_;           // all of it: what is damaged is given back as it was
  std::size_t pos_ = 0;        // before it, everything is emitted or held in held_arguments_
  std::size_t searched_ = 0;   // at least pos_; no stop of the current state begins before it
  std::size_t raw_begin_ = 0;  // of the tool block or EOS
  State state_;
  bool strict_failed_ = false;
  bool is_string_ = false;  // the parameter being read
  std::size_t num_calls_ = 0;
  std::string call_name_;
  std::unordered_set<std::string> keys_;  // of the call being read
  bool holds_arguments_ = false;
  std::string held_arguments_;
  std::vector<CompletionDelta> deltas_;
};

}  // namespace dsv4
