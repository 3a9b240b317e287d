// tokenizer_json.cc: fuzzes a whole tokenizer.json, and encoding with what loads.
#include "tokenizer_checks.h"

namespace dsv4::fuzz {
namespace {

void load(std::string_view json) {
  const Tokenizer tokenizer = Tokenizer::parse(json, "fuzz");
  // The file's own end holds names of its tokens.
  const std::string_view text = json.substr(json.size() - std::min<std::size_t>(json.size(), 256));
  check_ids(tokenizer, text);
  check_text(tokenizer, text);
}

}  // namespace
}  // namespace dsv4::fuzz

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace dsv4::fuzz;
  accepted([&] { load(as_text(data, size)); });
  return 0;
}
