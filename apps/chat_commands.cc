// chat_commands.cc: the commands of dsv4 chat, those that begin with a slash.
#include <fmt/format.h>

#include <utility>

#include "base/error.h"
#include "chat_history.h"
#include "chat_loop.h"
#include "console.h"
#include "io/atomic_file.h"
#include "text/chat_marks.h"
#include "text/conversation_names.h"
#include "text/strict_json.h"

namespace dsv4 {

struct ChatLoop::Command {
  std::string_view name, argument, help;
  void (ChatLoop::*run)(const std::string& argument);
};

const std::vector<ChatLoop::Command>& ChatLoop::commands() {
  static const std::vector<Command> list = {
      {"help", "", "this list", &ChatLoop::help},
      {"reset", "", "begin anew; system message, tools and options stay", &ChatLoop::reset},
      {"think", "on|off", "whether the model reasons first", &ChatLoop::think},
      {"effort", "none|low|high|max", "how much it reasons", &ChatLoop::effort},
      {"system", "TEXT", "the system message; -: none", &ChatLoop::system},
      {"tools", "FILE", "offer the tools of a JSON file; -: none", &ChatLoop::tools},
      {"save", "FILE", "write the conversation as JSON", &ChatLoop::save},
      {"load", "FILE", "go on with a conversation that was saved", &ChatLoop::load},
      {"quit", "", "leave; so does Ctrl-D", &ChatLoop::quit},
  };
  return list;
}

void ChatLoop::run_command(const std::string& name, const std::string& argument) {
  for (const Command& command : commands()) {
    if (command.name != name) continue;
    require(argument.empty() || !command.argument.empty(), ErrorCode::kBadRequest,
            "/{} takes nothing after it", name);
    return (this->*command.run)(argument);
  }
  fail(ErrorCode::kBadRequest,
       "there is no command /{}; /quit leaves, /help lists them all, and // begins a text with a "
       "slash",
       name);
}

void ChatLoop::help(const std::string&) {
  for (const Command& command : commands()) {
    write_stderr_line(fmt::format(
        "  {:26}{}", fmt::format("/{} {}", command.name, command.argument), command.help));
  }
  write_stderr_line(
      "A command without what may stand after it says how things are.\n"
      "\"\"\" begins a text of several lines and ends it; // begins a text with a slash.\n"
      "Ctrl-C stops an answer. When the model calls a tool you are asked for its result; an empty\n"
      "line is an empty result. An empty line after a question without an answer asks again.");
}

void ChatLoop::reset(const std::string&) {
  drop_messages(conversation_);
  tell("a new conversation");
}

void ChatLoop::think(const std::string& argument) {
  require(argument.empty() || argument == "on" || argument == "off", ErrorCode::kBadRequest,
          "/think takes on or off, not {}", quote(argument));
  if (!argument.empty()) conversation_.options.thinking = argument == "on";
  write_stderr_line(fmt::format("thinking is {}", conversation_.options.thinking ? "on" : "off"));
}

void ChatLoop::effort(const std::string& argument) {
  if (!argument.empty()) {
    Conversation changed = conversation_;
    changed.options.effort = value_by_name(kEfforts, argument, "the effort");
    change(std::move(changed));
  }
  write_stderr_line(fmt::format("the effort is {}{}",
                                name_of(kEfforts, conversation_.options.effort),
                                conversation_.options.thinking ? "" : "; it acts with /think on"));
}

void ChatLoop::system(const std::string& argument) {
  if (argument.empty()) {
    const std::string text = system_text(conversation_);
    write_stderr_line(text.empty() ? "no system message" : "system: " + printable(text));
    return;
  }
  require_no_chat_mark(argument, "the system message");
  set_system_text(conversation_, argument == "-" ? "" : argument);
  tell("it holds from the beginning of the conversation, which is read anew");
}

void ChatLoop::tools(const std::string& argument) {
  if (!argument.empty()) {
    Conversation changed = conversation_;
    set_tools(changed, argument == "-" ? std::vector<JsonValue>() : read_tools_file(argument));
    change(std::move(changed));
    tell("they hold from the beginning of the conversation, which is read anew");
  }
  std::string names;
  for (const JsonValue& function : offered_tools(conversation_)) {
    names += (names.empty() ? "" : ", ") + *function.find("name")->as_string();
  }
  write_stderr_line(names.empty() ? "no tools" : "tools: " + printable(names));
}

void ChatLoop::save(const std::string& argument) {
  require(!argument.empty(), ErrorCode::kBadRequest, "/save needs the name of a file");
  write_text_file(argument, print_conversation(conversation_));
  tell(fmt::format("{} messages saved", conversation_.messages.size()));
}

void ChatLoop::load(const std::string& argument) {
  require(!argument.empty(), ErrorCode::kBadRequest, "/load needs the name of a file");
  change(read_conversation_file(argument));
  tell(fmt::format("{} messages loaded", conversation_.messages.size()));
  if (awaits_answer(conversation_)) tell("the last has no answer yet; an empty line asks for it");
}

void ChatLoop::quit(const std::string&) { done_ = true; }

}  // namespace dsv4
