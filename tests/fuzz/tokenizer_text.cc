// tokenizer_text.cc: fuzzes patterns, merges and added tokens of an otherwise sound tokenizer.json
// with a text to encode. The input: lists, their items ended by 0x1f, each list by 0x1e: split
// patterns, added tokens, merges in byte symbols ("a b"); then the text. No patterns: V4's.
#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>

#include "tokenizer_checks.h"

namespace dsv4::fuzz {
namespace {

using nlohmann::json;

constexpr std::size_t kMaxItems = 64, kMaxPatterns = 3, kMaxTextBytes = 512;

// The split patterns of V4's tokenizer.json.
const std::vector<std::string> kV4Patterns = {
    R"(\p{N}{1,3})", "[\u4E00-\u9FA5\u3040-\u309F\u30A0-\u30FF]+",
    R"([!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)"};

// The symbol of each byte in a vocabulary, as GPT-2 chose them: printable ones stand for
// themselves, the others are U+0100 and on.
std::vector<std::string> byte_symbols() {
  std::vector<std::string> symbols;
  int next = 0x100;
  for (int byte = 0; byte < 256; ++byte) {
    const bool is_printable = (byte >= 0x21 && byte <= 0x7E) || (byte >= 0xA1 && byte != 0xAD);
    const int code_point = is_printable ? byte : next++;
    std::string symbol;
    if (code_point >= 0x80) symbol.push_back(static_cast<char>(0xC0 | code_point >> 6));
    symbol.push_back(
        static_cast<char>(code_point < 0x80 ? code_point : 0x80 | (code_point & 0x3F)));
    symbols.push_back(symbol);
  }
  return symbols;
}

std::vector<std::string> take_list(std::string_view& input) {
  std::string_view list = take_part(input, "\x1e");
  std::vector<std::string> items;
  while (!list.empty() && items.size() < kMaxItems) {
    items.emplace_back(take_part(list, "\x1f"));
  }
  return items;
}

json pre_tokenizer(std::vector<std::string> patterns) {
  if (patterns.empty()) patterns = kV4Patterns;
  json steps = json::array();
  for (std::size_t i = 0; i < std::min(patterns.size(), kMaxPatterns); ++i) {
    steps.push_back({{"type", "Split"}, {"behavior", "Isolated"}, {"invert", false}});
    steps.back()["pattern"]["Regex"] = patterns[i];
  }
  steps.push_back({{"type", "ByteLevel"}, {"add_prefix_space", false}, {"use_regex", false}});
  return {{"type", "Sequence"}, {"pretokenizers", steps}};
}

struct Lists {
  std::vector<std::string> patterns, added, merges;
};

// A new token gets the next id.
json make_file(const Lists& lists) {
  json file = {{"pre_tokenizer", pre_tokenizer(lists.patterns)},
               {"decoder", {{"type", "ByteLevel"}}}};
  json vocab, merges = json::array(), added = json::array();
  int next_id = 0;
  for (const std::string& symbol : byte_symbols()) vocab[symbol] = next_id++;
  std::map<std::string, int> added_ids;
  for (const std::string& content : lists.added) {
    const int id = vocab.contains(content) ? vocab[content].get<int>() : next_id++;
    added_ids[content] = id;
    added.push_back({{"id", id}, {"content", content}, {"special", content.ends_with('>')}});
  }
  for (const std::string& merge : lists.merges) {
    std::string joined = merge;
    joined.erase(std::remove(joined.begin(), joined.end(), ' '), joined.end());
    const auto as_added = added_ids.find(joined);
    if (as_added != added_ids.end()) {
      vocab[joined] = as_added->second;
    } else if (!vocab.contains(joined)) {
      vocab[joined] = next_id++;
    }
    merges.push_back(merge);
  }
  file["added_tokens"] = added;
  file["model"] = {{"type", "BPE"}, {"vocab", vocab}, {"merges", merges}};
  return file;
}

// Loading takes far longer than encoding, and most inputs differ from the one before in the text
// alone. Takes the lists off the front of `input`; null if they are refused.
const Tokenizer* load(std::string_view& input) {
  constexpr std::size_t kMaxKept = 64;
  static std::map<std::string, std::optional<Tokenizer>, std::less<>> kept;
  const std::string_view whole = input;
  const Lists lists{take_list(input), take_list(input), take_list(input)};
  const std::string_view key = whole.substr(0, whole.size() - input.size());
  auto found = kept.find(key);
  if (found == kept.end()) {
    if (kept.size() == kMaxKept) kept.clear();
    found = kept.emplace(key, std::nullopt).first;
    const std::string file = make_file(lists).dump(-1, ' ', false, json::error_handler_t::replace);
    accepted([&] { found->second = Tokenizer::parse(file, "fuzz"); });
  }
  return found->second ? &*found->second : nullptr;
}

void run(std::string_view input) {
  const Tokenizer* tokenizer = load(input);
  if (tokenizer == nullptr) return;
  input = input.substr(0, kMaxTextBytes);
  check_ids(*tokenizer, input);
  check_text(*tokenizer, input);
}

}  // namespace
}  // namespace dsv4::fuzz

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace dsv4::fuzz;
  accepted([&] { run(as_text(data, size)); });
  return 0;
}
