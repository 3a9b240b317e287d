// chat_stream.cc: a state machine over the text so far; one step goes from one stop to the next.
#include "text/chat_stream.h"

#include <algorithm>
#include <array>
#include <iterator>
#include <utility>

#include "base/check.h"
#include "text/chat_marks.h"
#include "text/dsml.h"
#include "text/utf8.h"

namespace dsv4 {
namespace {

using Kind = CompletionDelta::Kind;

constexpr std::size_t kNone = std::string_view::npos;

// No piece that is searched for or held back is longer.
constexpr std::size_t kLongestPiece = 40;

// As published, the closer is searched without its "<", so a value can contain neither.
constexpr std::string_view kValueEnd = kParameterCloser.substr(1);

constexpr std::array kTextMarks = {kToolCallsOpener, kBosMark,      kEosMark,
                                   kThinkMark,       kEndThinkMark, kDsmlMark};
constexpr std::array kValueMarks = {kParameterCloser, kValueEnd};

template <class Pieces>
constexpr bool all_fit(const Pieces& pieces) {
  for (const std::string_view piece : pieces) {
    if (piece.size() > kLongestPiece) return false;
  }
  return true;
}
static_assert(all_fit(kTextMarks) && all_fit(kValueMarks));
static_assert(kInvokeOpener.size() <= kLongestPiece && kInvokeCloser.size() <= kLongestPiece &&
              kStringParameter.size() <= kLongestPiece && kJsonParameter.size() <= kLongestPiece);

// Bytes of a character that `text` ends inside of.
std::size_t incomplete_character(std::string_view text) {
  for (std::size_t n = 1; n <= std::min<std::size_t>(3, text.size()); ++n) {
    if (next_utf8(text.substr(text.size() - n)).kind == Utf8Kind::kIncomplete) return n;
  }
  return 0;
}

// Length of the longest tail of `text` that may still become one of `marks`, or a character. EOS
// counts as such a tail though it is complete: it goes unprinted if it is the end.
template <std::size_t N>
std::size_t held_tail(std::string_view text, const std::array<std::string_view, N>& marks) {
  // Far enough back that no mark that begins earlier reaches a possible tail.
  const std::size_t reach = kLongestPiece + kDsmlMark.size();
  for (std::size_t at = text.size() - std::min(text.size(), reach); at < text.size();) {
    const std::string_view tail = text.substr(at);
    if (tail.starts_with(kDsmlMark)) {  // its last bar does not begin another
      at += kDsmlMark.size();
      continue;
    }
    for (const std::string_view mark : marks) {
      if (mark.starts_with(tail) && (tail.size() < mark.size() || mark == kEosMark)) {
        return tail.size();
      }
    }
    ++at;
  }
  return incomplete_character(text);
}

}  // namespace

CompletionStreamParser::CompletionStreamParser(bool thinking, const ToolParameters* tools)
    : thinking_(thinking), tools_(tools), state_(thinking ? State::kReasoning : State::kContent) {}

std::vector<CompletionDelta> CompletionStreamParser::push(std::string_view text) {
  text_.append(text);
  while (step()) {
  }
  return std::exchange(deltas_, {});
}

Completion CompletionStreamParser::finish(std::vector<CompletionDelta>& deltas) {
  const bool holds_text =
      state_ == State::kReasoning || state_ == State::kContent || state_ == State::kRaw;
  if (!holds_text && state_ != State::kDone) fail();  // inside tool calls
  const std::size_t eos = rest().ends_with(kEosMark) ? kEosMark.size() : 0;
  const Kind kind = state_ == State::kReasoning ? Kind::kReasoning : Kind::kContent;
  emit_text(kind, rest().size() - eos);
  std::move(deltas_.begin(), deltas_.end(), std::back_inserter(deltas));
  deltas_.clear();

  Completion completion = parse_lenient(text_, thinking_);
  if (tools_ != nullptr) {
    for (ToolCall& call : completion.tool_calls) tools_->unwrap(call);
  }
  return completion;
}

bool CompletionStreamParser::step() {
  switch (state_) {
    case State::kReasoning:
      return step_reasoning();
    case State::kContent:
      return step_content();
    case State::kDone:
      return rest().empty() ? false : fail();
    case State::kRaw:
      emit_text(Kind::kContent, rest().size() - held_tail(rest(), kTextMarks));
      return false;
    case State::kBetweenCalls:
      return step_between_calls();
    case State::kInvokeHead:
      return step_invoke_head();
    case State::kParameterName:
      return step_parameter_name();
    case State::kParameterKey:
      return step_parameter_key();
    case State::kParameterValue:
      return step_parameter_value();
    case State::kAfterParameter:
      return step_after_parameter();
    case State::kAfterCalls:
      return step_after_calls();
  }
  DSV4_CHECK(false, "state {}", static_cast<int>(state_));
}

bool CompletionStreamParser::step_reasoning() {
  const EitherPiece stop = find(kEndThinkMark, kToolCallsOpener);
  if (stop.at == kNone) {
    emit_text(Kind::kReasoning, rest().size() - held_tail(rest(), kTextMarks));
    return false;
  }
  emit_text(Kind::kReasoning, stop.at);
  if (stop.is_first) {
    advance(kEndThinkMark.size(), State::kContent);
  } else {
    strict_failed_ = true;
    advance(0, State::kRaw);
  }
  return true;
}

bool CompletionStreamParser::step_content() {
  const EitherPiece stop = find(kEosMark, kToolCallsOpener);
  if (stop.at == kNone) {
    emit_text(Kind::kContent, rest().size() - held_tail(rest(), kTextMarks));
    return false;
  }
  emit_text(Kind::kContent, stop.at);
  raw_begin_ = pos_;
  if (stop.is_first) {
    advance(kEosMark.size(), State::kDone);
  } else if (strict_failed_) {
    advance(0, State::kRaw);
  } else {
    advance(kToolCallsOpener.size(), State::kBetweenCalls);
  }
  return true;
}

bool CompletionStreamParser::step_between_calls() {
  const Match closer = match(kTagEnd, kToolCallsCloser), invoke = match(kTagEnd, kInvokeOpener);
  if (closer == Match::kFull) {
    advance(kTagEnd.size() + kToolCallsCloser.size(), State::kAfterCalls);
    return true;
  }
  if (invoke == Match::kFull) {
    advance(kTagEnd.size() + kInvokeOpener.size(), State::kInvokeHead);
    return true;
  }
  return closer == Match::kNo && invoke == Match::kNo ? fail() : false;
}

bool CompletionStreamParser::step_invoke_head() {
  const EitherPiece stop = find(kParameterOpener, kInvokeCloser);
  if (stop.at == kNone) {
    note_searched();
    return false;
  }
  std::string_view name;
  if (!parse_invoke_head(rest().substr(0, stop.at), name)) return fail();
  begin_call(name);
  if (stop.is_first) {
    advance(stop.at + kParameterOpener.size(), State::kParameterName);
  } else {
    end_call();
    advance(stop.at + kInvokeCloser.size(), State::kBetweenCalls);
  }
  return true;
}

bool CompletionStreamParser::step_parameter_name() {
  const Match attribute = match(kNameAttribute, "");
  if (attribute == Match::kNo) return fail();
  if (attribute == Match::kPartial) return false;
  advance(kNameAttribute.size(), State::kParameterKey);
  return true;
}

bool CompletionStreamParser::step_parameter_key() {
  const EitherPiece attribute = find(kStringParameter, kJsonParameter);
  const std::string_view key = rest().substr(0, attribute.at);
  if (key.find(kValueEnd, searched_ - pos_) != kNone) return fail();
  if (attribute.at == kNone) {
    note_searched();
    return false;
  }
  const bool is_first = keys_.empty();
  if (!keys_.emplace(key).second) return fail();
  is_string_ = attribute.is_first;
  holds_arguments_ = is_first && tools_ != nullptr && tools_->is_wrapper(call_name_, key);
  emit_arguments(is_first ? "{" : ", ");
  emit_arguments(print_json_string(key));
  emit_arguments(is_string_ ? ": \"" : ": ");
  advance(key.size() + (is_string_ ? kStringParameter : kJsonParameter).size(),
          State::kParameterValue);
  return true;
}

bool CompletionStreamParser::step_parameter_value() {
  const std::size_t tag_end = rest().find(kValueEnd);
  if (tag_end == kNone) {
    const std::size_t num_bytes = rest().size() - held_tail(rest(), kValueMarks);
    emit_value(rest().substr(0, num_bytes));
    advance(num_bytes, State::kParameterValue);
    return false;
  }
  if (tag_end == 0 || rest()[tag_end - 1] != '<') return fail();
  emit_value(rest().substr(0, tag_end - 1));
  if (is_string_) emit_arguments("\"");
  advance(tag_end + kValueEnd.size(), State::kAfterParameter);
  return true;
}

bool CompletionStreamParser::step_after_parameter() {
  const Match parameter = match(kTagEnd, kParameterOpener), closer = match(kTagEnd, kInvokeCloser);
  if (parameter == Match::kFull) {
    release_arguments();  // two parameters are no wrapper
    advance(kTagEnd.size() + kParameterOpener.size(), State::kParameterName);
    return true;
  }
  if (closer == Match::kFull) {
    end_call();
    advance(kTagEnd.size() + kInvokeCloser.size(), State::kBetweenCalls);
    return true;
  }
  return parameter == Match::kNo && closer == Match::kNo ? fail() : false;
}

bool CompletionStreamParser::step_after_calls() {
  const Match eos = match(kEosMark, "");
  if (eos == Match::kNo) return fail();
  if (eos == Match::kPartial) return false;
  advance(kEosMark.size(), State::kDone);
  return true;
}

CompletionStreamParser::Match CompletionStreamParser::match(std::string_view piece_a,
                                                            std::string_view piece_b) const {
  std::string_view text = rest();
  for (const std::string_view piece : {piece_a, piece_b}) {
    if (text.size() < piece.size()) return piece.starts_with(text) ? Match::kPartial : Match::kNo;
    if (!text.starts_with(piece)) return Match::kNo;
    text.remove_prefix(piece.size());
  }
  return Match::kFull;
}

EitherPiece CompletionStreamParser::find(std::string_view piece_a, std::string_view piece_b) const {
  return find_either(rest(), piece_a, piece_b, searched_ - pos_);
}

void CompletionStreamParser::note_searched() {
  searched_ = std::max(pos_, text_.size() - std::min(text_.size(), kLongestPiece));
}

void CompletionStreamParser::advance(std::size_t num_bytes, State state) {
  pos_ += num_bytes;
  searched_ = pos_;
  state_ = state;
}

void CompletionStreamParser::emit_text(Kind kind, std::size_t num_bytes) {
  const std::string_view text = rest().substr(0, num_bytes);
  // A mark is never cut between two pieces, so each piece can be looked at by itself.
  if (!find_forbidden_mark(text).empty()) strict_failed_ = true;
  emit(kind, text);
  advance(num_bytes, state_);
}

void CompletionStreamParser::emit(Kind kind, std::string_view text) {
  if (text.empty()) return;
  const bool is_call = kind == Kind::kToolCall;
  const std::size_t call_idx = is_call ? num_calls_ - 1 : 0;
  if (deltas_.empty() || deltas_.back().kind != kind || deltas_.back().call_idx != call_idx) {
    deltas_.push_back({.kind = kind, .call_idx = call_idx});
  }
  deltas_.back().text.append(text);
}

void CompletionStreamParser::emit_value(std::string_view text) {
  if (!is_string_) return emit_arguments(text);
  std::string escaped;
  append_json_escaped(text, escaped);
  emit_arguments(escaped);
}

void CompletionStreamParser::emit_arguments(std::string_view text) {
  if (holds_arguments_) {
    held_arguments_.append(text);
  } else {
    emit(Kind::kToolCall, text);
  }
}

void CompletionStreamParser::release_arguments() {
  holds_arguments_ = false;
  emit(Kind::kToolCall, std::exchange(held_arguments_, {}));
}

void CompletionStreamParser::begin_call(std::string_view name) {
  call_name_ = name;
  keys_.clear();
  deltas_.push_back({.kind = Kind::kToolCall, .call_idx = num_calls_++, .name = call_name_});
}

void CompletionStreamParser::end_call() {
  emit_arguments(keys_.empty() ? "{}" : "}");
  if (holds_arguments_) {
    ToolCall call{.id = {}, .name = call_name_, .arguments = std::move(held_arguments_)};
    tools_->unwrap(call);
    held_arguments_ = std::move(call.arguments);
  }
  release_arguments();
}

bool CompletionStreamParser::fail() {
  strict_failed_ = true;
  holds_arguments_ = false;
  held_arguments_.clear();
  if (num_calls_ > 0) deltas_.push_back({.kind = Kind::kToolCallsVoided});
  num_calls_ = 0;
  pos_ = raw_begin_;
  advance(0, State::kRaw);
  return true;
}

}  // namespace dsv4
