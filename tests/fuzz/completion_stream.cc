// completion_stream.cc: fuzzes the streaming parser against the whole one, in any split. First
// byte: bit 0 is thinking, bit 1 gives it tools; then lengths of pieces, one a byte, up to a zero;
// then the text. After the last length the pieces begin again from the first.
#include <algorithm>
#include <array>
#include <string>
#include <vector>

#include "fuzz.h"
#include "text/chat_marks.h"
#include "text/chat_stream.h"
#include "text/dsml.h"

namespace dsv4::fuzz {
namespace {

constexpr std::string_view kTools = R"([
    {"function": {"name": "f", "parameters": {"properties": {"a": {}, "b": {}}}}},
    {"function": {"name": "g", "parameters": {"properties": {"arguments": {}}}}},
    {"function": {"name": "h"}}])";

const ToolParameters& tools() {
  static const ToolParameters parameters(parse_tools(parse_json(kTools, "the tools"), "the tools"));
  return parameters;
}

// The deltas of one kind, joined, and where one ends and the next begins.
struct Joined {
  std::string text;
  std::vector<std::size_t> seams;

  void append(const std::string& piece) {
    text += piece;
    seams.push_back(text.size());
  }
};

struct JoinedCall {
  std::string name, arguments;
};

// No seam lies inside a mark. A mark's last bar begins no other, so they are read front to back.
void check_marks(const Joined& joined) {
  constexpr std::array kMarks = {kToolCallsOpener, kBosMark,      kEosMark,
                                 kThinkMark,       kEndThinkMark, kDsmlMark};
  auto seam = joined.seams.begin();
  for (std::size_t at = 0; at < joined.text.size();) {
    const std::string_view rest = std::string_view(joined.text).substr(at);
    std::size_t length = 0;
    for (const std::string_view mark : kMarks) {
      if (rest.starts_with(mark)) length = std::max(length, mark.size());
    }
    while (seam != joined.seams.end() && *seam <= at) ++seam;
    FUZZ_CHECK(length == 0 || seam == joined.seams.end() || *seam >= at + length);
    at += std::max<std::size_t>(length, 1);
  }
}

class Collector {
 public:
  explicit Collector(bool is_utf8) : is_utf8_(is_utf8) {}

  void take(const std::vector<CompletionDelta>& deltas) {
    for (const CompletionDelta& delta : deltas) {
      using Kind = CompletionDelta::Kind;
      const std::string& text = delta.text;
      if (is_utf8_) FUZZ_CHECK(valid_utf8_prefix(text) == text.size());
      FUZZ_CHECK(delta.kind == Kind::kToolCall || delta.name.empty());
      switch (delta.kind) {
        case Kind::kReasoning:
          FUZZ_CHECK(!text.empty() && content_.text.empty() && calls_.empty());
          reasoning_.append(text);
          break;
        case Kind::kContent:
          FUZZ_CHECK(!text.empty() && calls_.empty());
          content_.append(text);
          break;
        case Kind::kToolCallsVoided:
          FUZZ_CHECK(!calls_.empty() && text.empty());
          calls_.clear();
          break;
        case Kind::kToolCall:
          take_call(delta);
          break;
      }
    }
  }

  void check_against(const Completion& want) const {
    FUZZ_CHECK(reasoning_.text == want.reasoning);
    FUZZ_CHECK(content_.text == want.content);
    FUZZ_CHECK(calls_.size() == want.tool_calls.size());
    for (std::size_t i = 0; i < calls_.size(); ++i) {
      FUZZ_CHECK(calls_[i].name == want.tool_calls[i].name);
      FUZZ_CHECK(calls_[i].arguments == want.tool_calls[i].arguments);
    }
    check_marks(reasoning_);
    check_marks(content_);
  }

 private:
  // A name may be empty, so a call begins where its index is new.
  void take_call(const CompletionDelta& delta) {
    if (delta.call_idx == calls_.size()) {
      calls_.push_back({delta.name, {}});
    } else {
      FUZZ_CHECK(delta.call_idx + 1 == calls_.size() && delta.name.empty());
    }
    calls_.back().arguments += delta.text;
  }

  const bool is_utf8_;
  Joined reasoning_, content_;
  std::vector<JoinedCall> calls_;
};

void run(std::string_view lengths, std::string_view text, bool thinking, bool with_tools) {
  const ToolParameters* known = with_tools ? &tools() : nullptr;
  CompletionStreamParser parser(thinking, known);
  Collector collector(valid_utf8_prefix(text) == text.size());
  for (std::size_t at = 0, i = 0; at < text.size(); ++i) {
    const std::size_t length =
        lengths.empty() ? text.size() : static_cast<std::uint8_t>(lengths[i % lengths.size()]);
    collector.take(parser.push(text.substr(at, length)));
    at += std::min(length, text.size() - at);
  }
  std::vector<CompletionDelta> last;
  const Completion got = parser.finish(last);
  collector.take(last);
  collector.check_against(got);

  Completion want = parse_lenient(text, thinking);
  if (known != nullptr) {
    for (ToolCall& call : want.tool_calls) known->unwrap(call);
  }
  collector.check_against(want);
  FUZZ_CHECK(got.warning == want.warning);
}

}  // namespace
}  // namespace dsv4::fuzz

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace dsv4::fuzz;
  std::string_view text = as_text(data, size);
  const std::uint8_t choice = take_byte(text);
  const std::string_view lengths = take_part(text, std::string_view("\0", 1));
  run(lengths, text, choice & 1, choice & 2);
  return 0;
}
