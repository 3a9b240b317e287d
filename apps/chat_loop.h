// chat_loop.h: a conversation with a model: whose turn it is, the commands, and what is said about
// it all. Input is chat_input.h's, the conversation itself chat_history.h's.
//
// stdout gets what the model says and nothing else; all else goes to stderr.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "chat_answer.h"
#include "chat_input.h"
#include "dsv4/engine.h"
#include "line_reader.h"
#include "text/conversation.h"

namespace dsv4 {

struct ChatOptions {
  std::optional<std::int64_t> max_tokens;  // of an answer; none: what the context has left
  SamplingOptions sampling;
  bool interactive = false;  // a person is there: prompts, figures, and errors do not end it
  bool quiet = false;
};

class ChatLoop {
 public:
  // `conversation` may have messages already. Throws Error kBadRequest if it has no prompt in this
  // model, e.g. because of its effort. The others must outlive the loop.
  ChatLoop(Engine& engine, LineReader& reader, Conversation conversation, ChatOptions options);

  // Until /quit or the end of the input. Throws OutputClosed; Interrupted on SIGTERM, and on Ctrl-C
  // when nobody is there; the first Error then, too.
  void run();

 private:
  struct Command;
  static const std::vector<Command>& commands();

  std::string prompt() const;
  void take_interrupt();
  void take(ChatInput input);
  void take_text(std::string text);
  void take_result(std::string text, const std::vector<ToolCall>& open);
  void answer();
  void keep(ChatAnswer answer);
  void tell_end(const ChatAnswer& answer) const;
  // Makes `changed` the conversation if it has a prompt. Throws Error kBadRequest.
  void change(Conversation changed);
  // A note for a person.
  void tell(const std::string& text) const;

  void run_command(const std::string& name, const std::string& argument);
  void help(const std::string& argument);
  void reset(const std::string& argument);
  void think(const std::string& argument);
  void effort(const std::string& argument);
  void system(const std::string& argument);
  void tools(const std::string& argument);
  void save(const std::string& argument);
  void load(const std::string& argument);
  void quit(const std::string& argument);

  Engine& engine_;
  LineReader& reader_;
  Conversation conversation_;
  const ChatOptions options_;
  bool done_ = false;
  bool was_interrupted_ = false;  // at the prompt, and nothing came since
};

}  // namespace dsv4
