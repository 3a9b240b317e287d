// tokenizer_json_test.cc: what a tokenizer.json may not say. Every refusal starts from a good file
// with one change.
#include "text/tokenizer_json.h"

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <functional>

#include "dsv4/error.h"
#include "text/tokenizer_fixtures.h"

namespace dsv4 {
namespace {

using nlohmann::json;

const json& good_file() {
  static const json file = json::parse(read_text_file(nano_tokenizer_path()));
  return file;
}

void expect_refused(ErrorCode code, std::string_view part, const std::string& text) {
  try {
    parse_tokenizer_json(text, "file.json");
  } catch (const Error& e) {
    const std::string_view message = e.what();
    EXPECT_EQ(e.code(), code) << message;
    EXPECT_NE(message.find(part), std::string_view::npos) << message;
    EXPECT_EQ(message.substr(0, 10), "file.json:") << message;
    EXPECT_LT(message.size(), 600u);
    for (const char c : message) EXPECT_GE(static_cast<unsigned char>(c), 0x20) << message;
    return;
  }
  ADD_FAILURE() << "accepted; wanted an error with: " << part;
}

struct Refusal {
  std::string part;  // of the message
  std::function<void(json&)> change;
};
void expect_refusals(ErrorCode code, const std::vector<Refusal>& refusals) {
  for (const Refusal& refusal : refusals) {
    SCOPED_TRACE(refusal.part);
    json file = good_file();
    refusal.change(file);
    expect_refused(code, refusal.part, file.dump());
  }
}

TEST(TokenizerJson, SettingsThatAreNotImplementedAreNamed) {
  expect_refusals(
      ErrorCode::kUnsupported,
      {{"\"surprise\"", [](json& f) { f["surprise"] = 1; }},
       {"version", [](json& f) { f["version"] = "2.0"; }},
       {"truncation",
        [](json& f) {
          f["truncation"] = {{"max_length", 5}};
        }},
       {"padding",
        [](json& f) {
          f["padding"] = {{"strategy", "Fixed"}};
        }},
       {"normalizer",
        [](json& f) {
          f["normalizer"] = {{"type", "NFC"}};
        }},
       {"normalizer",
        [](json& f) {
          f["normalizer"] = {{"type", "Sequence"}, {"normalizers", {{{"type", "NFC"}}}}};
        }},
       {"post_processor.type", [](json& f) { f["post_processor"]["type"] = "TemplateProcessing"; }},
       {"decoder.type", [](json& f) { f["decoder"]["type"] = "Metaspace"; }},
       {"model.type", [](json& f) { f["model"]["type"] = "Unigram"; }},
       {"\"a?b\"",
        [](json& f) {
          f["model"]["type"] =
              "a\u009b"
              "b";
        }},
       {"model.dropout", [](json& f) { f["model"]["dropout"] = 0.1; }},
       {"model.unk_token", [](json& f) { f["model"]["unk_token"] = "<unk>"; }},
       {"model.continuing_subword_prefix",
        [](json& f) { f["model"]["continuing_subword_prefix"] = "##"; }},
       {"model.end_of_word_suffix", [](json& f) { f["model"]["end_of_word_suffix"] = "</w>"; }},
       {"model.fuse_unk", [](json& f) { f["model"]["fuse_unk"] = true; }},
       {"model.byte_fallback", [](json& f) { f["model"]["byte_fallback"] = true; }},
       {"model.ignore_merges", [](json& f) { f["model"]["ignore_merges"] = true; }},
       {"\"cache\"", [](json& f) { f["model"]["cache"] = 1; }},
       {"pre_tokenizer.type", [](json& f) { f["pre_tokenizer"]["type"] = "Whitespace"; }},
       {"pretokenizers[0].behavior",
        [](json& f) { f["pre_tokenizer"]["pretokenizers"][0]["behavior"] = "Removed"; }},
       {"pretokenizers[1].invert",
        [](json& f) { f["pre_tokenizer"]["pretokenizers"][1]["invert"] = true; }},
       {"\"String\"",
        [](json& f) {
          f["pre_tokenizer"]["pretokenizers"][0]["pattern"] = {{"String", " "}};
        }},
       {"pretokenizers[2].type",
        [](json& f) {
          f["pre_tokenizer"]["pretokenizers"][2] = {{"type", "Digits"}};
        }},
       {"pretokenizers[2].type", [](json& f) { f["pre_tokenizer"]["pretokenizers"].erase(3); }},
       {"pretokenizers = []", [](json& f) { f["pre_tokenizer"]["pretokenizers"] = json::array(); }},
       {"pretokenizers[3].use_regex",
        [](json& f) { f["pre_tokenizer"]["pretokenizers"][3]["use_regex"] = true; }},
       {"pretokenizers[3].add_prefix_space",
        [](json& f) { f["pre_tokenizer"]["pretokenizers"][3]["add_prefix_space"] = true; }},
       {"added_tokens[4].lstrip", [](json& f) { f["added_tokens"][4]["lstrip"] = true; }},
       {"added_tokens[4].rstrip", [](json& f) { f["added_tokens"][4]["rstrip"] = true; }},
       {"added_tokens[4].single_word", [](json& f) { f["added_tokens"][4]["single_word"] = true; }},
       {"stands in added_tokens", [](json& f) {  // decoded as text it would not be the " " it was
          f["added_tokens"].push_back(
              {{"id", f["model"]["vocab"]["\u0120"]}, {"content", "\u0120"}});
        }}});
}

TEST(TokenizerJson, DamageIsNamed) {
  expect_refusals(
      ErrorCode::kBadCheckpoint,
      {{"model.vocab: must be an object", [](json& f) { f["model"].erase("vocab"); }},
       {"model.merges: must be an array", [](json& f) { f["model"].erase("merges"); }},
       {"model.merges: must be an array", [](json& f) { f["model"]["merges"] = "a b"; }},
       {"model: must be an object", [](json& f) { f.erase("model"); }},
       {"decoder: must be an object", [](json& f) { f.erase("decoder"); }},
       {"pre_tokenizer: must be an object", [](json& f) { f["pre_tokenizer"] = nullptr; }},
       {"pretokenizers[0].pattern: must be an object",
        [](json& f) { f["pre_tokenizer"]["pretokenizers"][0].erase("pattern"); }},
       {"[\"zz\"]: the id -1 is outside", [](json& f) { f["model"]["vocab"]["zz"] = -1; }},
       {"the id 1048576 is outside", [](json& f) { f["model"]["vocab"]["zz"] = 1 << 20; }},
       {"the id 18446744073709551615 is outside",
        [](json& f) { f["model"]["vocab"]["zz"] = std::uint64_t{0} - 1; }},
       {"must be an integer", [](json& f) { f["model"]["vocab"]["zz"] = 2.5; }},
       {"must be an integer", [](json& f) { f["model"]["vocab"]["zz"] = "7"; }},
       {"the id 67 is given twice", [](json& f) { f["model"]["vocab"]["zzzz"] = 67; }},
       {"the id 2040 is given twice", [](json& f) { f["model"]["vocab"]["zzzz"] = 2040; }},
       {"stands for no byte", [](json& f) { f["model"]["vocab"]["z z"] = 2100; }},
       {"stands for no byte", [](json& f) { f["model"]["vocab"]["\u0144"] = 2100; }},
       {"stands for no byte", [](json& f) { f["model"]["vocab"]["\uFF5C"] = 2100; }},
       {"is empty", [](json& f) { f["model"]["vocab"][""] = 2100; }},
       {"the byte 0x61 has no token", [](json& f) { f["model"]["vocab"].erase("a"); }},
       {"merges[0]: \"zzzz\" is not in the vocabulary",
        [](json& f) {
          f["model"]["merges"][0] = {"zzzz", "a"};
        }},
       {"is not in the vocabulary",
        [](json& f) {
          f["model"]["merges"][0] = {"~", "~"};
        }},
       {"merges[1]: the pair stands twice",
        [](json& f) { f["model"]["merges"][1] = f["model"]["merges"][0]; }},
       {"must name two tokens", [](json& f) { f["model"]["merges"][0] = {"a"}; }},
       {"must be a string",
        [](json& f) {
          f["model"]["merges"][0] = {"a", 1};
        }},
       {"is not two tokens", [](json& f) { f["model"]["merges"][0] = "ab"; }},
       {"is not two tokens", [](json& f) { f["model"]["merges"][0] = "a b c"; }},
       {"added_tokens[5]: the id 2032 is given twice",
        [](json& f) { f["added_tokens"][5]["id"] = 2032; }},
       {"added twice",
        [](json& f) { f["added_tokens"][5]["content"] = f["added_tokens"][4]["content"]; }},
       {"has id 0 here and 3000", [](json& f) { f["added_tokens"][0]["id"] = 3000; }},
       {"is empty", [](json& f) { f["added_tokens"][4]["content"] = ""; }},
       {"at most 1024", [](json& f) { f["added_tokens"][4]["content"] = std::string(1025, 'x'); }},
       {"must be true or false", [](json& f) { f["added_tokens"][4]["special"] = "yes"; }},
       {"added_tokens[4].id: must be an integer",
        [](json& f) { f["added_tokens"][4].erase("id"); }},
       {"added_tokens: must be an array", [](json& f) { f["added_tokens"] = 5; }}});
}

TEST(TokenizerJson, TextThatIsNoStrictJson) {
  for (const char* text :
       {"", "{", "nonsense", "{\"a\":1,}", "[1", "\"\xFF\"", "{\"\\ud800\": 1}"}) {
    SCOPED_TRACE(text);
    expect_refused(ErrorCode::kBadCheckpoint, "not valid JSON", text);
  }
  expect_refused(ErrorCode::kBadCheckpoint,
                 "file.json: not valid JSON: line 2, column 1: ", "[1,\n");
  expect_refused(ErrorCode::kBadCheckpoint, "byte 2 is NUL", std::string("{}\0x", 4));
  expect_refused(ErrorCode::kBadCheckpoint, "not valid JSON", "{\"a\": " + std::string(9999, 'x'));
  expect_refused(ErrorCode::kBadCheckpoint, "file.json: must be an object, is array", "[]");
  expect_refused(ErrorCode::kUnsupported, "file.json: the field \"a\" is unknown", "{\"a\": 1}");
  expect_refused(ErrorCode::kBadCheckpoint, "stands twice", "{\"model\": {\"a\": 1, \"a\": 1}}");
  expect_refused(ErrorCode::kBadCheckpoint, "levels deep", std::string(100000, '['));
  std::string truncated = good_file().dump();
  truncated.resize(truncated.size() / 2);
  expect_refused(ErrorCode::kBadCheckpoint, "not valid JSON", truncated);
  expect_refused(ErrorCode::kBadCheckpoint, "at most",
                 std::string(kMaxTokenizerJsonBytes + 1, ' '));
}

TEST(TokenizerJson, BothSpellingsOfMergesAndGapsBetweenIds) {
  json file = good_file();
  for (auto& merge : file["model"]["merges"]) {
    merge = merge[0].get<std::string>() + " " + merge[1].get<std::string>();
  }
  file["model"]["vocab"]["zzzz"] = kMaxVocab - 1;
  const Tokenizer tokenizer = Tokenizer::parse(file.dump(), "edited");
  EXPECT_EQ(tokenizer.vocab_size(), kMaxVocab);
  EXPECT_FALSE(tokenizer.is_token(kMaxVocab - 2));
  EXPECT_THROW(tokenizer.decode(std::vector<TokenId>{kMaxVocab - 2}), Error);
  EXPECT_EQ(tokenizer.decode(std::vector<TokenId>{kMaxVocab - 1}), "zzzz");
  const std::string text = "The lighthouse keeper, 1234 and the rest.";
  EXPECT_EQ(tokenizer.encode(text), nano_tokenizer().encode(text));
}

TEST(TokenizerJson, AbsentNeutralSettingsAreTheirDefaults) {
  json file = good_file();
  for (const char* key : {"version", "truncation", "padding", "normalizer", "post_processor"}) {
    file.erase(key);
  }
  for (const char* key : {"dropout", "unk_token", "fuse_unk", "byte_fallback", "ignore_merges"}) {
    file["model"].erase(key);
  }
  EXPECT_NO_THROW(Tokenizer::parse(file.dump(), "edited"));
}

TEST(TokenizerJson, FilesThatCannotBeRead) {
  const auto expect_code = [](ErrorCode code, const std::filesystem::path& path) {
    try {
      Tokenizer::load(path);
      ADD_FAILURE() << "no error";
    } catch (const Error& e) {
      EXPECT_EQ(e.code(), code) << e.what();
      EXPECT_NE(std::string_view(e.what()).find(path.string()), std::string_view::npos) << e.what();
    }
  };
  expect_code(ErrorCode::kNotFound, source_dir() / "no/such/tokenizer.json");
  expect_code(ErrorCode::kIo, source_dir());
  expect_code(ErrorCode::kIo, "/dev/zero");
  const std::filesystem::path huge =
      std::filesystem::temp_directory_path() / fmt::format("dsv4_huge_{}.json", getpid());
  { std::ofstream file(huge); }
  std::filesystem::resize_file(huge, kMaxTokenizerJsonBytes + 1);
  expect_code(ErrorCode::kBadCheckpoint, huge);
  std::filesystem::remove(huge);
}

}  // namespace
}  // namespace dsv4
