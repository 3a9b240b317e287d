// tool_arguments.cc: fuzzes a request's tools together with the arguments that a model wrote. The
// input: tools JSON, a zero, the name of the called tool, a zero, the arguments.
#include "text/tool_arguments.h"

#include <string>

#include "fuzz.h"

namespace dsv4::fuzz {
namespace {

void unwrap(std::string_view input) {
  constexpr std::string_view kZero("\0", 1);
  const JsonValue tools = parse_json(take_part(input, kZero), "tools");
  const ToolParameters parameters(parse_tools(tools, "tools"));
  ToolCall call{
      .id = {}, .name = std::string(take_part(input, kZero)), .arguments = std::string(input)};
  const ToolCall before = call;
  const bool changed = parameters.unwrap(call);
  FUZZ_CHECK(call.name == before.name);
  if (!changed) {
    FUZZ_CHECK(call.arguments == before.arguments);
    return;
  }
  const auto got = read_json(call.arguments), had = read_json(before.arguments);
  FUZZ_CHECK(got && got->as_object() != nullptr);
  FUZZ_CHECK(had && had->as_object() != nullptr && had->as_object()->size() == 1);
  FUZZ_CHECK(parameters.is_wrapper(call.name, had->as_object()->front().key));
}

}  // namespace
}  // namespace dsv4::fuzz

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace dsv4::fuzz;
  accepted([&] { unwrap(as_text(data, size)); });
  return 0;
}
