// chat_encode.cc: messages become turns, turns are ordered and thinned, then printed one by one.
#include "text/chat_encode.h"

#include <algorithm>
#include <cstddef>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/check.h"
#include "base/error.h"
#include "text/chat_marks.h"
#include "text/dsml.h"
#include "text/prompt_texts.h"
#include "text/strict_json.h"

namespace dsv4 {
namespace {

// A part of a user turn: what the user or a tool said.
struct Part {
  bool is_result;
  std::string_view tool_call_id;  // of a result
  std::string_view text;
};

// One turn of the prompt; texts belong to the conversation.
struct Turn {
  Role role;
  const Message* message;   // of a user turn: the message that began it
  std::vector<Part> parts;  // of a user turn
  std::optional<Task> task;
  bool has_tools = false;
  bool is_printed = true;
};

bool asks(const Turn& turn) { return turn.role == Role::kUser || turn.role == Role::kDeveloper; }

// Tool messages become results of user turns; user messages join the turn before unless it has a
// task. What else a joined message has (its own task) is lost.
void append_turns(const std::vector<Message>& messages, bool is_printed, std::vector<Turn>& turns) {
  const std::size_t begin = turns.size();  // turns of the context take no more parts
  for (const Message& message : messages) {
    require(message.role != Role::kDeveloper || !message.content.empty(), ErrorCode::kBadRequest,
            "{}[{}]: a developer message must not be empty", is_printed ? "messages" : "context",
            &message - messages.data());
    const bool is_result = message.role == Role::kTool;
    if (!is_result && message.role != Role::kUser) {
      turns.push_back(
          {message.role, &message, {}, message.task, !message.tools.empty(), is_printed});
      continue;
    }
    const bool joins = turns.size() > begin && turns.back().role == Role::kUser &&
                       (is_result || !turns.back().task);
    if (!joins) {
      const std::optional<Task> task = is_result ? std::nullopt : message.task;
      const bool has_tools = !is_result && !message.tools.empty();
      turns.push_back({Role::kUser, &message, {}, task, has_tools, is_printed});
    }
    turns.back().parts.push_back({is_result, message.tool_call_id, message.content});
  }
}

// Results of one user turn take the order of the calls before it, in the places that results held.
void order_results(std::vector<Turn>& turns) {
  std::unordered_map<std::string_view, std::size_t> order;  // of the last calls, by id
  const auto place = [&order](const Part* part) {
    const auto found = order.find(part->tool_call_id);
    return found == order.end() ? 0 : found->second;
  };
  for (Turn& turn : turns) {
    if (turn.role == Role::kAssistant && !turn.message->tool_calls.empty()) {
      order.clear();
      const std::vector<ToolCall>& calls = turn.message->tool_calls;
      for (std::size_t i = 0; i < calls.size(); ++i) {
        if (!calls[i].id.empty()) order[calls[i].id] = i;
      }
    }
    if (order.empty()) continue;
    const std::vector<Part> parts = turn.parts;
    std::vector<const Part*> results;
    for (const Part& part : parts) {
      if (part.is_result) results.push_back(&part);
    }
    std::stable_sort(results.begin(), results.end(),
                     [&place](const Part* a, const Part* b) { return place(a) < place(b); });
    auto next = results.begin();
    for (Part& part : turn.parts) {
      if (part.is_result) part = **next++;
    }
  }
}

std::ptrdiff_t last_asking_turn(const std::vector<Turn>& turns) {
  for (std::size_t i = turns.size(); i > 0; --i) {
    if (asks(turns[i - 1])) return static_cast<std::ptrdiff_t>(i) - 1;
  }
  return -1;
}

// Developer turns before the last question go with the reasoning there.
void drop_old_developers(std::vector<Turn>& turns) {
  const std::ptrdiff_t last = last_asking_turn(turns);
  if (last <= 0) return;
  const auto is_developer = [](const Turn& turn) { return turn.role == Role::kDeveloper; };
  turns.erase(std::remove_if(turns.begin(), turns.begin() + last, is_developer),
              turns.begin() + last);
}

std::string_view effort_text(const EncodeOptions& options) {
  const bool is_initial = options.effort_table == EffortTable::kInitial;
  switch (options.effort) {
    case ReasoningEffort::kNone:
      return "";
    case ReasoningEffort::kLow:
      require(!is_initial, ErrorCode::kBadRequest,
              "effort \"low\" is unknown to the initial releases; use none, high or max");
      return "";
    case ReasoningEffort::kHigh:
      return is_initial ? "" : kEffortAbsolute;
    case ReasoningEffort::kMax:
      return is_initial ? kEffortAbsolute : kEffortBeyond;
  }
  DSV4_CHECK(false, "effort {}", static_cast<int>(options.effort));
}

std::string_view task_mark(Task task) { return kTaskMarks[static_cast<std::size_t>(task)]; }

void append_parameter(std::string_view key, const JsonValue& value, std::string& out) {
  const std::string* text = value.as_string();
  out.append(kParameterOpener).append(kNameAttribute).append(key);
  out.append(text != nullptr ? kStringParameter : kJsonParameter);
  out.append(text != nullptr ? *text : print_json(value));
  out.append(kParameterCloser).append(">");
}

void append_invoke(const ToolCall& call, std::string& out) {
  std::optional<JsonValue> arguments = read_json(call.arguments);
  if (!arguments) arguments = {JsonValue::Object{{"arguments", {call.arguments}}}};
  const JsonValue::Object* members = arguments->as_object();
  require(members != nullptr, ErrorCode::kBadRequest,
          "the arguments of the call of {} are no JSON object: {}", quote(call.name),
          quote(call.arguments));
  out.append(kInvokeOpener).append(kNameAttribute).append(call.name).append(kInvokeHeadEnd);
  std::string_view separator;
  for (const JsonMember& member : *members) {
    out.append(separator);
    append_parameter(member.key, member.value, out);
    separator = "\n";
  }
  out.append("\n").append(kInvokeCloser).append(">");
}

class Printer {
 public:
  Printer(const EncodeOptions& options, bool drop, const std::vector<Turn>& turns)
      : thinking_(options.thinking),
        drop_(drop),
        effort_(effort_text(options)),
        turns_(turns),
        last_(last_asking_turn(turns)) {}

  std::string print(bool add_bos) {
    if (add_bos) out_.append(kBosMark);
    for (std::size_t i = 0; i < turns_.size(); ++i) {
      if (!turns_[i].is_printed) continue;
      if (i == 0 && thinking_) out_.append(effort_);
      append_body(i);
      append_prompt_for_answer(i);
    }
    return std::move(out_);
  }

 private:
  void append_body(std::size_t i) {
    const Turn& turn = turns_[i];
    switch (turn.role) {
      case Role::kSystem:
        out_.append(turn.message->content);
        append_extras(*turn.message);
        break;
      case Role::kDeveloper:
        out_.append(kUserMark).append(turn.message->content);
        append_extras(*turn.message);
        break;
      case Role::kUser:
        append_parts(turn.parts);
        break;
      case Role::kLatestReminder:
        out_.append(kReminderMark).append(turn.message->content);
        break;
      case Role::kAssistant:
        append_answer(i);
        break;
      case Role::kTool:
        DSV4_CHECK(false, "tool messages are parts of user turns");
    }
  }

  void append_extras(const Message& message) {
    if (!message.tools.empty()) {
      out_.append("\n\n").append(kToolsHead);
      std::string_view separator;
      for (const JsonValue& function : message.tools) {
        out_.append(separator).append(print_json(function));
        separator = "\n";
      }
      out_.append(kToolsTail);
    }
    if (message.response_format) {
      out_.append("\n\n").append(kResponseHead).append(print_json(*message.response_format));
    }
  }

  void append_parts(const std::vector<Part>& parts) {
    out_.append(kUserMark);
    std::string_view separator;
    for (const Part& part : parts) {
      out_.append(separator);
      if (part.is_result) {
        out_.append("<tool_result>").append(part.text).append("</tool_result>");
      } else {
        out_.append(part.text);
      }
      separator = "\n\n";
    }
  }

  // After a turn with a task no <think> is open, and an old turn's question ended in </think>.
  void append_answer(std::size_t i) {
    const Message& message = *turns_[i].message;
    const bool after_task = i > 0 && turns_[i - 1].task;
    if (thinking_ && !after_task && (!drop_ || static_cast<std::ptrdiff_t>(i) > last_)) {
      out_.append(message.reasoning).append(kEndThinkMark);
    }
    out_.append(message.content);
    if (!message.tool_calls.empty()) {
      out_.append("\n\n").append(encode_tool_calls(message.tool_calls));
    }
    if (!message.wo_eos) out_.append(kEosMark);
  }

  // Marks between turn i and an answer, whether the next turn is one or the model is to write it.
  void append_prompt_for_answer(std::size_t i) {
    const Turn& turn = turns_[i];
    if (i + 1 < turns_.size() && turns_[i + 1].role != Role::kAssistant &&
        turns_[i + 1].role != Role::kLatestReminder) {
      return;
    }
    if (turn.task) {
      if (turn.task == Task::kAction) {
        out_.append(kAssistantMark).append(thinking_ ? kThinkMark : kEndThinkMark);
      }
      out_.append(task_mark(*turn.task));
    } else if (asks(turn)) {
      const bool thinks = thinking_ && (!drop_ || static_cast<std::ptrdiff_t>(i) >= last_);
      out_.append(kAssistantMark).append(thinks ? kThinkMark : kEndThinkMark);
    }
  }

  const bool thinking_;
  const bool drop_;
  const std::string_view effort_;
  const std::vector<Turn>& turns_;
  const std::ptrdiff_t last_;
  std::string out_;
};

}  // namespace

std::string encode_tool_calls(const std::vector<ToolCall>& calls) {
  std::string out = "<";
  out.append(kDsmlMark).append("tool_calls>\n");
  std::string_view separator;
  for (const ToolCall& call : calls) {
    out.append(separator);
    append_invoke(call, out);
    separator = "\n";
  }
  return out.append("\n").append(kToolCallsCloser);
}

std::string encode_conversation(const Conversation& conversation) {
  const EncodeOptions& options = conversation.options;
  std::vector<Turn> turns;
  append_turns(conversation.context, false, turns);
  append_turns(conversation.messages, true, turns);
  order_results(turns);
  const bool drop =
      options.thinking && options.drop_thinking &&
      std::none_of(turns.begin(), turns.end(), [](const Turn& turn) { return turn.has_tools; });
  if (drop) drop_old_developers(turns);
  return Printer(options, drop, turns).print(options.add_bos && conversation.context.empty());
}

}  // namespace dsv4
