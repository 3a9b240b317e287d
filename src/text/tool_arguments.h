// tool_arguments.h: what a request's tools say about their parameters, for one repair: models wrap
// all arguments of a call in a single parameter named "arguments" or "input". Parsing completions
// is chat_parse.h's.
#pragma once

#include <string>
#include <string_view>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "text/conversation.h"

namespace dsv4 {

class ToolParameters {
 public:
  // Of functions as parse_tools returns them. A tool whose parameters are not listed under
  // "properties" (but by anyOf or $ref, say) is left alone.
  explicit ToolParameters(const std::vector<JsonValue>& functions);

  // Whether `parameter` of a call of `tool` looks like a wrapper: it has the name of one, the tool
  // is known and has no such parameter.
  bool is_wrapper(std::string_view tool, std::string_view parameter) const;

  // Takes off the wrapper if it is the call's only parameter and holds an object, or text that is
  // one. Otherwise the call stays as it is. Returns whether it changed.
  bool unwrap(ToolCall& call) const;

 private:
  std::unordered_map<std::string, std::unordered_set<std::string>> parameters_;  // by tool
};

}  // namespace dsv4
