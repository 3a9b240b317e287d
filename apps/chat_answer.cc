#include "chat_answer.h"

#include <chrono>
#include <optional>
#include <variant>
#include <vector>

#include "chat_history.h"
#include "chat_signals.h"
#include "chat_view.h"
#include "console.h"
#include "text/chat_marks.h"
#include "text/chat_stream.h"

namespace dsv4 {
namespace {

using Kind = CompletionDelta::Kind;

// How soon Ctrl-C is seen while no token comes.
constexpr std::chrono::milliseconds kPoll{50};

// Waits for the next event, with a bar while a long prompt is read.
void wait_for_event(RequestHandle& handle, std::optional<ProgressBar>& bar) {
  while (!handle.wait_for(kPoll)) {
    if (ChatSignals::wants_attention()) handle.cancel();
    const PromptProgress progress = handle.prompt_progress();
    if (bar) bar->update(progress.computed_tokens, progress.total_tokens);
  }
  bar.reset();  // what comes now is printed where it stood
}

class AnswerStream {
 public:
  AnswerStream(bool thinking, const ToolParameters& tools) : parser_(thinking, &tools) {}

  void push(std::string_view text) {
    for (const CompletionDelta& delta : parser_.push(text)) show(delta);
  }

  // Shows what is held back, too. What is cut is not the parser's to judge: it would take a tool
  // call that is not complete for text.
  void finish(ChatAnswer& answer) {
    if (!answer.is_cut()) push(kEosMark);  // the end token has no text of its own
    std::vector<CompletionDelta> deltas;
    Completion& completion = answer.completion = parser_.finish(deltas);
    if (answer.is_cut()) {
      answer.dropped_calls = drop_cut_calls(completion);
      completion.warning.clear();
      show_rest(Kind::kReasoning, completion.reasoning, reasoning_bytes_);
      show_rest(Kind::kContent, completion.content, content_bytes_);
    } else {
      for (const CompletionDelta& delta : deltas) show(delta);
    }
    if (answer.reason == FinishReason::kCancelled && stdin_is_terminal()) view_.note_echo();
    view_.end();
  }

 private:
  void show(const CompletionDelta& delta) {
    view_.show(delta);
    if (delta.kind == Kind::kReasoning) reasoning_bytes_ += delta.text.size();
    if (delta.kind == Kind::kContent) content_bytes_ += delta.text.size();
  }
  void show_rest(Kind kind, const std::string& text, std::size_t num_shown) {
    if (text.size() > num_shown) view_.show({.kind = kind, .text = text.substr(num_shown)});
  }

  CompletionStreamParser parser_;
  ChatView view_;
  std::size_t reasoning_bytes_ = 0, content_bytes_ = 0;  // shown
};

}  // namespace

bool ChatAnswer::says_nothing() const {
  return completion.reasoning.empty() && completion.content.empty() &&
         completion.tool_calls.empty();
}

ChatAnswer stream_answer(Engine& engine, const Request& request, bool thinking,
                         const ToolParameters& tools, bool shows_progress) {
  ChatAnswer answer;
  AnswerStream stream(thinking, tools);
  std::optional<ProgressBar> bar;
  if (shows_progress) {
    bar.emplace("reading the prompt", "tokens", std::chrono::steady_clock::now() + kQuietTime);
  }
  RequestHandle handle = engine.submit(request);
  for (;;) {
    wait_for_event(handle, bar);
    const std::optional<Event> event = handle.next();
    if (!event) break;
    if (ChatSignals::wants_attention()) handle.cancel();
    if (const auto* token = std::get_if<TokenEvent>(&*event)) {
      ++answer.usage.completion_tokens;  // of an answer that ends in an error
      stream.push(token->text);
    } else if (const auto* finish = std::get_if<FinishEvent>(&*event)) {
      stream.push(finish->text);
      answer.reason = finish->reason;
      answer.usage = finish->usage;
      answer.timings = finish->timings;
    } else {
      answer.error = std::get<ErrorEvent>(*event);
    }
  }
  stream.finish(answer);
  return answer;
}

}  // namespace dsv4
