// tool_arguments_test.cc: wrapped arguments, and parameters that only look like a wrapper.
#include "text/tool_arguments.h"

#include <gtest/gtest.h>

namespace dsv4 {
namespace {

ToolParameters parameters_of(std::string_view tools) {
  return ToolParameters(parse_tools(parse_json(tools, "test"), "tools"));
}

std::string unwrapped(const ToolParameters& tools, const std::string& name,
                      const std::string& arguments) {
  ToolCall call{.id = "", .name = name, .arguments = arguments};
  const bool changed = tools.unwrap(call);
  EXPECT_EQ(changed, call.arguments != arguments);
  return call.arguments;
}

constexpr std::string_view kTools = R"([
  {"function": {"name": "plain", "parameters": {"properties": {"a": {}}}}},
  {"function": {"name": "real", "parameters": {"properties": {"arguments": {}, "input": {}}}}},
  {"function": {"name": "none"}},
  {"function": {"name": "indirect", "parameters": {"$ref": "#/x"}}}])";

TEST(ToolArguments, WrapperIsTakenOff) {
  const ToolParameters tools = parameters_of(kTools);
  for (const std::string wrapper : {"arguments", "input"}) {
    const std::string object = "{\"" + wrapper + "\": {\"a\":1}}";
    const std::string text = "{\"" + wrapper + "\": \"{\\\"a\\\":1}\"}";
    EXPECT_EQ(unwrapped(tools, "plain", object), "{\"a\": 1}");
    EXPECT_EQ(unwrapped(tools, "plain", text), "{\"a\": 1}");
    EXPECT_EQ(unwrapped(tools, "none", object), "{\"a\": 1}");
    for (const char* name : {"real", "indirect", "unknown"}) {
      EXPECT_EQ(unwrapped(tools, name, object), object) << name;
      EXPECT_EQ(unwrapped(tools, name, text), text) << name;
    }
  }
}

TEST(ToolArguments, WhatIsNoWrapperStays) {
  const ToolParameters tools = parameters_of(kTools);
  for (const std::string arguments :
       {"{}", R"({"a": {"a":1}})", R"({"arguments": {}, "a": 1})", R"({"arguments": [1]})",
        R"({"arguments": "text"})", R"({"arguments": "[1]"})", R"({"arguments": null})",
        R"({"Arguments": {}})", R"({"arguments": {})", "oops", ""}) {
    EXPECT_EQ(unwrapped(tools, "plain", arguments), arguments);
  }
}

TEST(ToolArguments, DeeplyNestedArgumentsStay) {
  const ToolParameters tools = parameters_of(kTools);
  const std::string deep =
      std::string("{\"arguments\": ") + std::string(5000, '[') + std::string(5000, ']') + "}";
  EXPECT_EQ(unwrapped(tools, "plain", deep), deep);
}

TEST(ToolArguments, NoTools) {
  const std::string arguments = R"({"arguments": {}})";
  EXPECT_EQ(unwrapped(parameters_of("[]"), "f", arguments), arguments);
}

}  // namespace
}  // namespace dsv4
