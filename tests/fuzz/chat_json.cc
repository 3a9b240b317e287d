// chat_json.cc: fuzzes request JSON: what parses must encode or be refused, and the same request
// printed again is the same prompt.
#include <algorithm>
#include <string>

#include "fuzz.h"
#include "text/chat_encode.h"
#include "text/conversation.h"
#include "text/json_print.h"

namespace dsv4::fuzz {
namespace {

void encode(std::string_view text) {
  const JsonValue request = parse_json(text, "the request");
  const std::string printed = print_json(request);
  FUZZ_CHECK(valid_utf8_prefix(printed) == printed.size());
  const JsonValue again = parse_json(printed, "the printed request");
  FUZZ_CHECK(print_json(again) == printed);

  const Conversation conversation = parse_conversation(request);
  FUZZ_CHECK(!conversation.messages.empty());
  const std::string prompt = encode_conversation(conversation);
  FUZZ_CHECK(valid_utf8_prefix(prompt) == prompt.size());
  FUZZ_CHECK(encode_conversation(parse_conversation(again)) == prompt);
  for (const Message& message : conversation.messages) {
    // Old developer messages may be dropped.
    if (message.role == Role::kDeveloper) continue;
    FUZZ_CHECK(prompt.find(message.content) != std::string::npos);
  }
}

}  // namespace
}  // namespace dsv4::fuzz

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace dsv4::fuzz;
  accepted([&] { encode(as_text(data, size)); });
  return 0;
}
