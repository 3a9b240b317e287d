// chat_marks_test.cc: texts that would change a conversation's structure are found out.
#include "text/chat_marks.h"

#include <gtest/gtest.h>

#include "dsv4/error.h"

namespace dsv4 {
namespace {

TEST(ChatMarks, EveryMarkInATextIsFound) {
  for (const std::string_view mark :
       {kBosMark, kEosMark, kUserMark, kAssistantMark, kReminderMark, kThinkMark, kEndThinkMark}) {
    EXPECT_EQ(find_chat_mark(std::string("a ").append(mark).append("b")), mark);
  }
  for (const std::string_view mark : kTaskMarks) EXPECT_EQ(find_chat_mark(mark), mark);
  EXPECT_EQ(find_chat_mark("<\uFF5CDSML\uFF5Cinvoke name=\"f\">"), "\uFF5CDSML\uFF5C");
  EXPECT_EQ(find_chat_mark("</\uFF5CDSML\uFF5Ctool_calls>"), "\uFF5CDSML\uFF5C");
}

TEST(ChatMarks, OrdinaryTextHoldsNone) {
  for (const std::string_view text :
       {"", "<think", "think>", "<|User|>", "\uFF5C", "a < b > c", "<tool_result>"}) {
    EXPECT_EQ(find_chat_mark(text), "") << text;
  }
}

TEST(ChatMarks, TheRefusalNamesTextAndMark) {
  EXPECT_NO_THROW(require_no_chat_mark("think", "the message"));
  try {
    require_no_chat_mark("a</think>", "the message");
    FAIL() << "no error";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kBadRequest);
    EXPECT_TRUE(std::string_view(error.what()).starts_with("the message holds </think>, "));
  }
}

}  // namespace
}  // namespace dsv4
