// tokenizer_json.cc: the fields of a tokenizer.json, one function a part. Every known field is
// checked, every unknown one refused: a setting that is skipped silently gives wrong ids.
#include "text/tokenizer_json.h"

#include <fstream>
#include <initializer_list>
#include <optional>
#include <unordered_map>
#include <unordered_set>

#include "base/error.h"
#include "text/byte_table.h"
#include "text/strict_json.h"
#include "text/utf8.h"

namespace dsv4 {
namespace {

using nlohmann::json;

// A value with its path in the file, e.g. "tokenizer.json: model.vocab".
struct Field {
  const json& value;
  std::string where;

  template <class... Args>
  [[noreturn]] void bad(fmt::format_string<Args...> format, Args&&... args) const {
    fail(ErrorCode::kBadCheckpoint, "{}{}", place(),
         fmt::format(format, std::forward<Args>(args)...));
  }

  const json& object() const {
    if (!value.is_object()) bad("must be an object, is {}", value.type_name());
    return value;
  }
  const json& array() const {
    if (!value.is_array()) bad("must be an array, is {}", value.type_name());
    return value;
  }
  const std::string& string() const {
    if (!value.is_string()) bad("must be a string, is {}", value.type_name());
    return value.get_ref<const std::string&>();
  }
  TokenId id() const {
    if (!value.is_number_integer()) bad("must be an integer, is {}", value.type_name());
    // Numbers past 2^63 are unsigned and huge; get<int64_t> would wrap them.
    const bool fits = value.is_number_unsigned() ? value.get<std::uint64_t>() < kMaxVocab
                                                 : value.get<std::int64_t>() >= 0;
    if (!fits) bad("the id {} is outside 0 .. {}", value.dump(), kMaxVocab - 1);
    return value.get<TokenId>();
  }

  // A member; absent ones read as null.
  Field operator[](const char* key) const {
    static const json kNull;
    const auto at = object().find(key);
    return {at == value.end() ? kNull : *at, where + separator() + key};
  }
  Field operator[](std::size_t idx) const {
    return {array()[idx], fmt::format("{}[{}]", where, idx)};
  }

  void require_known_keys(std::initializer_list<std::string_view> known) const {
    for (const auto& [key, member] : object().items()) {
      bool found = false;
      for (std::string_view name : known) found = found || name == key;
      require(found, ErrorCode::kUnsupported, "{}the field {} is unknown; not supported", place(),
              quote(key));
    }
  }
  // The value is null, absent or one of `allowed`: settings that change nothing.
  void require_neutral(std::initializer_list<json> allowed) const {
    if (value.is_null()) return;
    for (const json& neutral : allowed) {
      if (value == neutral) return;
    }
    refuse();
  }
  void require_equal(const json& wanted) const {
    if (value != wanted) refuse(fmt::format("; only {} is", wanted.dump()));
  }
  [[noreturn]] void refuse(std::string_view hint = "") const {
    constexpr std::size_t kShown = 80;
    const std::string text = value.dump(-1, ' ', false, json::error_handler_t::replace);
    fail(ErrorCode::kUnsupported, "{} = {}{} is not supported{}", where,
         printable_utf8(text, kShown), text.size() > kShown ? "..." : "", hint);
  }

 private:
  bool is_root() const { return where.ends_with(' '); }  // "tokenizer.json: "
  const char* separator() const { return is_root() ? "" : "."; }
  // Begins a message.
  std::string place() const { return is_root() ? where : where + ": "; }
};

// The bytes that a byte-level token stands for; empty when a character is no symbol of a byte.
std::optional<std::string> bytes_of_symbols(std::string_view symbols) {
  std::string bytes;
  while (!symbols.empty()) {
    const std::size_t num_bytes = next_utf8(symbols).num_bytes;
    if (num_bytes > 2) return std::nullopt;  // symbols end at U+0143
    const auto lead = static_cast<std::uint8_t>(symbols[0]);
    const int code_point =
        num_bytes == 1 ? lead : (lead & 0x1F) << 6 | (static_cast<std::uint8_t>(symbols[1]) & 0x3F);
    if (code_point >= kNumByteSymbols || kSymbolToByte[code_point] < 0) return std::nullopt;
    bytes.push_back(static_cast<char>(kSymbolToByte[code_point]));
    symbols.remove_prefix(num_bytes);
  }
  return bytes;
}

void store_token(const Field& field, TokenId id, std::string bytes, TokenizerTables& tables) {
  if (bytes.empty()) field.bad("token {} is empty", id);
  if (tables.token_bytes.size() <= static_cast<std::size_t>(id)) tables.token_bytes.resize(id + 1);
  std::string& place = tables.token_bytes[id];
  if (!place.empty()) field.bad("the id {} is given twice, again to {}", id, quote(bytes));
  place = std::move(bytes);
}

void read_added_tokens(const Field& list, TokenizerTables& tables) {
  if (list.value.is_null()) return;
  std::unordered_set<std::string> contents;
  for (std::size_t i = 0; i < list.array().size(); ++i) {
    const Field entry = list[i];
    // `normalized` only matters to normalizers, and there is none.
    entry.require_known_keys(
        {"id", "content", "single_word", "lstrip", "rstrip", "normalized", "special"});
    for (const char* flag : {"single_word", "lstrip", "rstrip"}) {
      entry[flag].require_neutral({false});
    }
    const Field special = entry["special"];
    if (!special.value.is_null() && !special.value.is_boolean()) {
      special.bad("must be true or false");
    }
    const std::string& content = entry["content"].string();
    if (content.size() > kMaxAddedTokenBytes) {
      entry["content"].bad("{} bytes; at most {} are taken", content.size(), kMaxAddedTokenBytes);
    }
    const TokenId id = entry["id"].id();
    store_token(entry, id, content, tables);
    if (!contents.insert(content).second) entry.bad("{} is added twice", quote(content));
    tables.added.push_back({id, content, special.value == true});
  }
}

// Ids by name as the file writes tokens, for the merges.
using IdsByName = std::unordered_map<std::string_view, TokenId>;

IdsByName read_vocab(const Field& vocab, TokenizerTables& tables) {
  std::unordered_map<std::string_view, TokenId> added;
  for (const AddedToken& token : tables.added) added.emplace(token.content, token.id);
  IdsByName ids;
  ids.reserve(vocab.object().size());
  tables.byte_tokens.fill(-1);
  for (auto at = vocab.value.begin(); at != vocab.value.end(); ++at) {
    const std::string& name = at.key();
    const TokenId id = Field{at.value(), vocab.where + "[" + quote(name) + "]"}.id();
    ids.emplace(name, id);
    const std::optional<std::string> bytes = bytes_of_symbols(name);
    if (bytes && bytes->size() == 1) {
      tables.byte_tokens[static_cast<std::uint8_t>((*bytes)[0])] = id;
    }
    const auto as_added = added.find(name);
    if (as_added == added.end()) {
      if (!bytes) vocab.bad("{} has a character that stands for no byte", quote(name));
      store_token(vocab, id, *bytes, tables);
    } else if (as_added->second != id) {  // may stand in both lists, but as one token
      vocab.bad("{} has id {} here and {} in added_tokens", quote(name), id, as_added->second);
    } else if (bytes && *bytes != name) {
      fail(ErrorCode::kUnsupported,
           "{}: {} stands in added_tokens, too, where it is text and not the symbols of bytes; not "
           "implemented",
           vocab.where, quote(name));
    }
  }
  for (int byte = 0; byte < 256; ++byte) {
    if (tables.byte_tokens[byte] < 0) vocab.bad("the byte 0x{:02X} has no token", byte);
  }
  return ids;
}

// The two names of a merge, written "a b" or ["a", "b"].
std::pair<std::string_view, std::string_view> merge_names(const Field& merge) {
  if (merge.value.is_array()) {
    if (merge.value.size() != 2) merge.bad("must name two tokens");
    return {merge[std::size_t{0}].string(), merge[std::size_t{1}].string()};
  }
  const std::string_view both = merge.string();
  const std::size_t space = both.find(' ');  // a space in a token is written U+0120
  if (space == std::string_view::npos || both.find(' ', space + 1) != std::string_view::npos) {
    merge.bad("{} is not two tokens with a space between", quote(both));
  }
  return {both.substr(0, space), both.substr(space + 1)};
}

void read_merges(const Field& merges, const IdsByName& ids, TokenizerTables& tables) {
  const auto id_of = [&](const Field& merge, std::string_view name) {
    const auto at = ids.find(name);
    if (at == ids.end()) merge.bad("{} is not in the vocabulary", quote(name));
    return at->second;
  };
  std::unordered_set<std::uint64_t> pairs;
  pairs.reserve(merges.array().size());
  for (std::size_t i = 0; i < merges.array().size(); ++i) {
    const Field merge = merges[i];
    const auto names = merge_names(merge);
    const TokenId left = id_of(merge, names.first), right = id_of(merge, names.second);
    if (!pairs.insert(std::uint64_t{static_cast<std::uint32_t>(left)} << 32 | right).second) {
      merge.bad("the pair stands twice");
    }
    const std::string joined = std::string(names.first) + std::string(names.second);
    tables.merges.push_back({left, right, id_of(merge, joined)});
  }
}

void read_model(const Field& model, TokenizerTables& tables) {
  model["type"].require_equal("BPE");
  model.require_known_keys({"type", "dropout", "unk_token", "continuing_subword_prefix",
                            "end_of_word_suffix", "fuse_unk", "byte_fallback", "ignore_merges",
                            "vocab", "merges"});
  for (const char* key : {"dropout", "unk_token"}) model[key].require_neutral({});
  for (const char* key : {"continuing_subword_prefix", "end_of_word_suffix"}) {
    model[key].require_neutral({""});
  }
  for (const char* key : {"fuse_unk", "byte_fallback", "ignore_merges"}) {
    model[key].require_neutral({false});
  }
  const IdsByName ids = read_vocab(model["vocab"], tables);
  read_merges(model["merges"], ids, tables);
}

void read_byte_level(const Field& step) {
  step.require_known_keys({"type", "add_prefix_space", "trim_offsets", "use_regex"});
  step["add_prefix_space"].require_equal(false);
  step["use_regex"].require_equal(false);
}

void read_pre_tokenizer(const Field& field, TokenizerTables& tables) {
  field["type"].require_equal("Sequence");
  field.require_known_keys({"type", "pretokenizers"});
  const Field steps = field["pretokenizers"];
  const std::size_t count = steps.array().size();
  for (std::size_t i = 0; i < count; ++i) {
    const Field step = steps[i];
    const Field type = step["type"];
    if (i + 1 == count) {
      type.require_equal("ByteLevel");
      return read_byte_level(step);
    }
    type.require_equal("Split");
    step.require_known_keys({"type", "pattern", "behavior", "invert"});
    step["behavior"].require_equal("Isolated");
    step["invert"].require_neutral({false});
    step["pattern"].require_known_keys({"Regex"});
    tables.split_patterns.push_back(step["pattern"]["Regex"].string());
  }
  steps.refuse("; a sequence that ends in ByteLevel is");
}

void require_no_normalizer(const Field& normalizer) {
  if (normalizer.value.is_null()) return;
  if (normalizer["type"].value != "Sequence" || !normalizer["normalizers"].array().empty()) {
    normalizer.refuse();
  }
}

}  // namespace

TokenizerTables parse_tokenizer_json(std::string_view text, std::string_view where) {
  require(text.size() <= kMaxTokenizerJsonBytes, ErrorCode::kBadCheckpoint,
          "{}: {} bytes; a tokenizer.json has at most {}", where, text.size(),
          kMaxTokenizerJsonBytes);
  const json parsed = parse_strict_json(text, where);
  const Field file{parsed, fmt::format("{}: ", where)};
  file.require_known_keys({"version", "truncation", "padding", "added_tokens", "normalizer",
                           "pre_tokenizer", "post_processor", "decoder", "model"});
  file["version"].require_neutral({"1.0"});
  file["truncation"].require_neutral({});
  file["padding"].require_neutral({});
  require_no_normalizer(file["normalizer"]);
  // As a post-processor ByteLevel only moves offsets, which we do not give.
  if (!file["post_processor"].value.is_null()) {
    file["post_processor"]["type"].require_equal("ByteLevel");
  }
  file["decoder"]["type"].require_equal("ByteLevel");
  TokenizerTables tables;
  read_pre_tokenizer(file["pre_tokenizer"], tables);
  read_added_tokens(file["added_tokens"], tables);
  read_model(file["model"], tables);
  return tables;
}

std::string read_tokenizer_json(const std::filesystem::path& path) {
  std::error_code error;
  const auto status = std::filesystem::status(path, error);
  require(
      std::filesystem::exists(status), ErrorCode::kNotFound,
      "{}: no such file; copy it from where the model comes from, or use token ids instead of text",
      path.string());
  require(std::filesystem::is_regular_file(status), ErrorCode::kIo, "{}: not a regular file",
          path.string());
  const std::uintmax_t num_bytes = std::filesystem::file_size(path, error);
  require(!error, ErrorCode::kIo, "{}: {}", path.string(), error.message());
  require(num_bytes <= kMaxTokenizerJsonBytes, ErrorCode::kBadCheckpoint,
          "{}: {} bytes; a tokenizer.json has at most {}", path.string(), num_bytes,
          kMaxTokenizerJsonBytes);
  std::ifstream file(path, std::ios::binary);
  std::string text(num_bytes, '\0');
  require(file.is_open() && file.read(text.data(), static_cast<std::streamsize>(num_bytes)),
          ErrorCode::kIo, "{}: cannot be read; check its permissions", path.string());
  return text;
}

}  // namespace dsv4
