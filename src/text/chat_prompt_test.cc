// chat_prompt_test.cc: the single-turn prompt against ids and texts recorded elsewhere.
#include "text/chat_prompt.h"

#include <gtest/gtest.h>

#include "dsv4/error.h"
#include "text/chat_marks.h"
#include "text/tokenizer_fixtures.h"

namespace dsv4 {
namespace {

TEST(ChatPrompt, MarksAreThoseOfTheProtocol) {
  const auto protocol =
      nlohmann::json::parse(read_text_file(source_dir() / "tests/data/chat/protocol.json"));
  EXPECT_EQ(kBosMark, protocol.at("bos").get<std::string>());
  EXPECT_EQ(kEosMark, protocol.at("eos").get<std::string>());
  EXPECT_EQ(kUserMark, protocol.at("user").get<std::string>());
  EXPECT_EQ(kAssistantMark, protocol.at("assistant").get<std::string>());
  EXPECT_EQ(kThinkMark, protocol.at("think").get<std::string>());
  EXPECT_EQ(kEndThinkMark, protocol.at("end_think").get<std::string>());
}

// Whether `message` is no more than a text of this role.
bool is_plain(const nlohmann::json& message, const char* role) {
  return message.at("role") == role && message.size() == 2 && message.contains("content") &&
         message["content"].is_string();
}

// Without thinking, a conversation that opens with a user message and its answer begins with the
// prompt that asked for the answer.
TEST(ChatPrompt, OpensTheConversationsOfTheOfficialEncoder) {
  const auto cases =
      nlohmann::json::parse(read_text_file(source_dir() / "tests/data/chat/cases.json"));
  int num_compared = 0, num_with_system = 0;
  for (const auto& c : cases.at("prompts")) {
    const auto& messages = c.at("messages");
    std::size_t at = 0;
    std::string system;
    if (is_plain(messages.at(0), "system")) system = messages[at++].at("content");
    if (c.at("thinking") || at >= messages.size() || !is_plain(messages[at], "user")) continue;
    const std::string user = messages[at++].at("content");
    if (at < messages.size() && messages[at].at("role") != "assistant") continue;
    const std::string prompt = c.at("prompt");
    const std::string opening = render_single_turn({.user = user, .system = system});
    EXPECT_EQ(prompt.substr(0, opening.size()), opening);
    ++num_compared;
    num_with_system += system.empty() ? 0 : 1;
  }
  EXPECT_GE(num_compared, 10);
  EXPECT_GE(num_with_system, 3);
}

TEST(ChatPrompt, PromptsThatNanoWasMeasuredWith) {
  const Tokenizer& tokenizer = nano_tokenizer();
  const auto cases =
      nlohmann::json::parse(read_text_file(source_dir() / "models/nano/greedy.json"));
  ASSERT_GE(cases.size(), 6u);
  for (const auto& c : cases) {
    const std::string prompt = c.at("prompt");
    const std::size_t system_end = prompt.find(kUserMark), user_end = prompt.rfind(kAssistantMark);
    const std::size_t user_begin = system_end + kUserMark.size();
    const std::string system = prompt.substr(kBosMark.size(), system_end - kBosMark.size());
    const std::string user = prompt.substr(user_begin, user_end - user_begin);
    const SingleTurn turn = {
        .user = user, .system = system, .thinking = prompt.ends_with(kThinkMark)};
    EXPECT_EQ(render_single_turn(turn), prompt);
    EXPECT_EQ(encode_single_turn(tokenizer, turn), c.at("prompt_ids").get<std::vector<TokenId>>());
    EXPECT_EQ(tokenizer.decode(c.at("greedy_ids").get<std::vector<TokenId>>()),
              c.at("text").get<std::string>());
  }
}

TEST(ChatPrompt, NanoIds) {
  const Tokenizer& tokenizer = nano_tokenizer();
  const ChatMarks marks = find_chat_marks(tokenizer);
  EXPECT_EQ(marks.bos, 0);
  EXPECT_EQ(marks.eos, 1);
  EXPECT_EQ(marks.user, 2032);
  EXPECT_EQ(marks.assistant, 2033);
  EXPECT_EQ(marks.think, 2034);
  EXPECT_EQ(marks.end_think, 2035);
  EXPECT_EQ(encode_single_turn(tokenizer, {.user = "a"}),
            (std::vector<TokenId>{0, 2032, 67, 2033, 2035}));
  EXPECT_EQ(encode_single_turn(tokenizer, {.user = "", .system = "a", .thinking = true}),
            (std::vector<TokenId>{0, 67, 2032, 2033, 2034}));
}

TEST(ChatPrompt, MissingMarkIsNamed) {
  auto file = nlohmann::json::parse(read_text_file(nano_tokenizer_path()));
  for (auto& token : file["added_tokens"]) {
    if (token["content"] == kEndThinkMark) token["content"] = "</thunk>";
  }
  const Tokenizer tokenizer = Tokenizer::parse(file.dump(), "edited");
  try {
    encode_single_turn(tokenizer, {.user = "a"});
    ADD_FAILURE() << "no error";
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), ErrorCode::kBadCheckpoint);
    EXPECT_NE(std::string_view(e.what()).find("</think>"), std::string_view::npos) << e.what();
  }
}

}  // namespace
}  // namespace dsv4
