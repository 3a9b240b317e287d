#include "chat_loop.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/error.h"
#include "chat_history.h"
#include "chat_signals.h"
#include "chat_view.h"
#include "console.h"
#include "text/chat_marks.h"
#include "text/tool_arguments.h"

namespace dsv4 {
namespace {

constexpr std::string_view kPrompt = "> ";

}  // namespace

ChatLoop::ChatLoop(Engine& engine, LineReader& reader, Conversation conversation,
                   ChatOptions options)
    : engine_(engine), reader_(reader), options_(std::move(options)) {
  change(std::move(conversation));
}

void ChatLoop::run() {
  while (!done_) {
    ChatInput input = read_chat_input(reader_, prompt());
    if (input.kind == ChatInput::Kind::kEnd) return;
    if (input.kind == ChatInput::Kind::kInterrupted) {
      take_interrupt();
      continue;
    }
    was_interrupted_ = false;
    try {
      take(std::move(input));
    } catch (const Error& error) {
      if (!options_.interactive) throw;
      write_stderr_line("error: " + printable(error.what()));
    }
  }
}

void ChatLoop::take(ChatInput input) {
  require(input.kind != ChatInput::Kind::kUnfinished, ErrorCode::kBadRequest,
          "the input ended inside a text of several lines; end it with \"\"\"");
  if (input.kind == ChatInput::Kind::kCommand) {
    run_command(input.text, input.argument);
  } else {
    take_text(std::move(input.text));
  }
}

std::string ChatLoop::prompt() const {
  const std::vector<ToolCall> open = open_calls(conversation_);
  if (open.empty()) return std::string(kPrompt);
  return "result of " + printable(open.front().name) + kPrompt.data();
}

void ChatLoop::take_interrupt() {
  ChatSignals::take_interrupt();
  if (ChatSignals::terminated() || !options_.interactive) throw Interrupted{};
  if (was_interrupted_) write_stderr_line("to leave, type /quit or press Ctrl-D");
  was_interrupted_ = true;
}

void ChatLoop::take_text(std::string text) {
  const std::vector<ToolCall> open = open_calls(conversation_);
  if (!open.empty()) return take_result(std::move(text), open);
  if (text.empty()) {
    if (awaits_answer(conversation_)) answer();
    return;
  }
  require_no_chat_mark(text, "the message");
  conversation_.messages.push_back({.role = Role::kUser, .content = std::move(text)});
  try {
    answer();
  } catch (const Error&) {
    // Not answered: it is not part of the conversation, and the editor still has it.
    if (conversation_.messages.back().role == Role::kUser) conversation_.messages.pop_back();
    throw;
  }
}

void ChatLoop::take_result(std::string text, const std::vector<ToolCall>& open) {
  require_no_chat_mark(text, "the result");
  conversation_.messages.push_back(
      {.role = Role::kTool, .content = std::move(text), .tool_call_id = open.front().id});
  if (open.size() == 1) answer();
}

void ChatLoop::answer() {
  // The whole prompt, each time: what of it the engine has computed already is the engine's matter.
  Request request;
  std::vector<TokenId> tokens =
      engine_.tokenize(engine_.chat_prompt(print_conversation(conversation_)));
  const std::int64_t context = engine_.info().max_session_tokens;
  const std::int64_t room = context - std::ssize(tokens);
  require(
      room > 0, ErrorCode::kBadRequest,
      "the conversation would have {} tokens and the context has {}, so there is no room for an "
      "answer; nothing is lost: /save keeps the conversation, /reset begins a new one, and "
      "--context gives more room if the model allows it",
      tokens.size(), context);
  request.prompt = std::move(tokens);
  request.max_tokens = std::min(room, options_.max_tokens.value_or(room));
  request.sampling = options_.sampling;
  keep(stream_answer(engine_, request, conversation_.options.thinking,
                     ToolParameters(offered_tools(conversation_)),
                     options_.interactive && !options_.quiet));
}

void ChatLoop::keep(ChatAnswer answer) {
  const bool was_cancelled = answer.reason == FinishReason::kCancelled && !answer.error;
  // On a terminal one that comes too late to stop the answer is forgotten.
  const bool interrupt_came = ChatSignals::take_interrupt();
  tell_end(answer);
  if (!answer.completion.warning.empty()) {
    write_stderr_line("note: the answer is kept as it stands, its parts could not be told apart: " +
                      printable(answer.completion.warning));
  }
  if (!answer.is_cut() || !answer.says_nothing()) {
    add_answer(conversation_, std::move(answer.completion));
  } else if (was_cancelled && conversation_.messages.back().role == Role::kUser) {
    conversation_.messages.pop_back();
    tell("nothing was said; your message is taken back");
  }
  if (answer.error) throw Error(answer.error->code, answer.error->message);
  if ((was_cancelled || interrupt_came) && (!options_.interactive || ChatSignals::terminated())) {
    throw Interrupted{};
  }
}

void ChatLoop::tell_end(const ChatAnswer& answer) const {
  const std::int64_t drawn = answer.usage.completion_tokens;
  const std::int64_t used = answer.usage.prompt_tokens + drawn;
  const std::int64_t context = engine_.info().max_session_tokens;
  if (answer.reason == FinishReason::kLength && !answer.error) {
    write_stderr_line(used >= context ? "note: the context is full, the answer is cut; /save keeps "
                                        "the conversation, /reset begins a new one"
                                      : "note: the answer is cut at the length limit");
  }
  if (answer.reason == FinishReason::kCancelled) tell("interrupted");
  if (answer.dropped_calls) {
    write_stderr_line("note: a tool call that was not complete is left out");
  }
  if (answer.error || drawn == 0) return;
  const std::int64_t prompt_tokens = answer.usage.prompt_tokens;
  tell(fmt::format("prompt {}; answer {}; {} of {}",
                   token_figures(prompt_tokens, prompt_tokens, answer.timings.prompt_seconds),
                   token_figures(drawn, drawn - 1, answer.timings.decode_seconds), used, context));
}

void ChatLoop::change(Conversation changed) {
  Conversation next = changed;
  next.messages.push_back({.role = Role::kUser});
  engine_.chat_prompt(print_conversation(next));
  conversation_ = std::move(changed);
}

void ChatLoop::tell(const std::string& text) const {
  if (options_.interactive && !options_.quiet) write_dim_line(printable(text));
}

}  // namespace dsv4
