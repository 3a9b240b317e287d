// tokenizer.cc: the steps of encoding in order, over the parts that do them.
#include "text/tokenizer.h"

#include "base/error.h"
#include "text/added_tokens.h"
#include "text/bpe.h"
#include "text/pretokenizer.h"
#include "text/tokenizer_json.h"
#include "text/utf8.h"

namespace dsv4 {

struct Tokenizer::Impl {
  Impl(TokenizerTables tables, std::string_view where)
      : token_bytes(std::move(tables.token_bytes)),
        pretokenizer(tables.split_patterns, where),
        bpe(tables.byte_tokens, tables.merges),
        is_added(token_bytes.size()),
        is_special(token_bytes.size()),
        added(tables.added) {
    for (const AddedToken& token : tables.added) {
      is_added[token.id] = true;
      is_special[token.id] = token.special;
    }
  }

  bool is_token(TokenId id) const {
    return id >= 0 && static_cast<std::size_t>(id) < token_bytes.size() && !token_bytes[id].empty();
  }

  std::vector<std::string> token_bytes;  // by id; empty: no token
  Pretokenizer pretokenizer;
  Bpe bpe;
  std::vector<bool> is_added, is_special;  // by id
  AddedTokens added;
};

Tokenizer::Tokenizer(std::unique_ptr<const Impl> impl) : impl_(std::move(impl)) {}
Tokenizer::Tokenizer(Tokenizer&&) noexcept = default;
Tokenizer& Tokenizer::operator=(Tokenizer&&) noexcept = default;
Tokenizer::~Tokenizer() = default;

Tokenizer Tokenizer::load(const std::filesystem::path& tokenizer_json) {
  return parse(read_tokenizer_json(tokenizer_json), tokenizer_json.string());
}

Tokenizer Tokenizer::parse(std::string_view json, std::string_view where) {
  return Tokenizer(std::make_unique<Impl>(parse_tokenizer_json(json, where), where));
}

std::vector<TokenId> Tokenizer::encode(std::string_view utf8) const {
  require(utf8.size() <= kMaxTextBytes, ErrorCode::kBadRequest,
          "the text has {} bytes; at most {} are encoded at once", utf8.size(), kMaxTextBytes);
  std::string repaired;
  if (valid_utf8_prefix(utf8) < utf8.size()) {
    append_final_utf8(utf8, repaired);
    utf8 = repaired;
  }
  std::vector<TokenId> ids;
  BpeScratch scratch;
  Pretokenizer::Run pieces(impl_->pretokenizer, split_time_limit(utf8.size()));
  const std::function<void(std::string_view)> encode_piece = [&](std::string_view piece) {
    impl_->bpe.encode(piece, scratch, ids);
  };
  for (std::size_t at = 0; at < utf8.size();) {
    const AddedTokens::Match mark = impl_->added.find(utf8, at);
    pieces.split(utf8.substr(at, mark.begin - at), encode_piece);
    if (mark.begin < mark.end) ids.push_back(mark.id);
    at = mark.end;
  }
  return ids;
}

std::string Tokenizer::decode(std::span<const TokenId> ids, bool skip_special) const {
  std::string bytes;
  for (TokenId id : ids) {
    const std::string_view token = token_bytes(id);
    if (!(skip_special && is_special(id))) bytes += token;
  }
  if (valid_utf8_prefix(bytes) == bytes.size()) return bytes;
  std::string text;
  append_final_utf8(bytes, text);
  return text;
}

std::string_view Tokenizer::token_bytes(TokenId id) const {
  require(is_token(id), ErrorCode::kBadRequest,
          "the id {} is no token; the tokenizer has ids 0 .. {}", id, vocab_size() - 1);
  return impl_->token_bytes[id];
}

int Tokenizer::vocab_size() const { return static_cast<int>(impl_->token_bytes.size()); }
bool Tokenizer::is_token(TokenId id) const { return impl_->is_token(id); }
bool Tokenizer::is_added(TokenId id) const { return is_token(id) && impl_->is_added[id]; }
bool Tokenizer::is_special(TokenId id) const { return is_token(id) && impl_->is_special[id]; }

std::optional<TokenId> Tokenizer::find_added_token(std::string_view content) const {
  return impl_->added.id_of(content);
}

}  // namespace dsv4
