// question_file.cc: fuzzes a file of questions: each is a line, and a conversation that encodes.
#include "runtime/question_file.h"

#include "fuzz.h"
#include "text/chat_encode.h"

namespace dsv4::fuzz {
namespace {

void read(std::string_view text) {
  std::int64_t line = 0;
  const std::vector<Question> questions = parse_questions(text, "fuzz");
  FUZZ_CHECK(!questions.empty());
  for (const Question& question : questions) {
    FUZZ_CHECK(question.line > line && !question.place.empty());
    line = question.line;
    accepted([&] { encode_conversation(parse_conversation(question.conversation)); });
  }
}

}  // namespace
}  // namespace dsv4::fuzz

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace dsv4::fuzz;
  accepted([&] { read(as_text(data, size)); });
  return 0;
}
