// A broken invariant: the handler sees where, what and why; then the process is gone.
#include "base/check.h"

#include <gtest/gtest.h>

#include <cstdio>

namespace dsv4 {
namespace {

void print_handler(std::string_view message) {
  std::fprintf(stderr, "handled: %.*s\n", static_cast<int>(message.size()), message.data());
}
void other_handler(std::string_view) {}

TEST(Check, PassingConditionIsEvaluatedOnceAndSaysNothing) {
  int evaluations = 0;
  DSV4_CHECK(++evaluations == 1, "evaluated {} times", evaluations);
  EXPECT_EQ(evaluations, 1);
}

TEST(CheckDeathTest, HandlerSeesFileConditionAndMessageThenAborts) {
  EXPECT_EXIT(
      {
        set_check_handler(print_handler);
        DSV4_CHECK(1 + 1 == 3, "got {} rows", 7);
      },
      testing::KilledBySignal(SIGABRT),
      "handled: .*check_test\\.cc:[0-9]+: check failed: 1 \\+ 1 == 3: got 7 rows");
}

TEST(CheckDeathTest, MessageIsOptional) {
  EXPECT_EXIT(
      {
        set_check_handler(print_handler);
        DSV4_CHECK(false);
      },
      testing::KilledBySignal(SIGABRT), "check failed: false\n");
}

TEST(CheckDeathTest, DefaultPrintsNothing) {
  EXPECT_EXIT(DSV4_CHECK(false, "unheard"), testing::KilledBySignal(SIGABRT), "^$");
}

// A macro of several statements would fall out of an if without braces.
TEST(Check, IsOneStatement) {
  bool reached = false;
  if (reached)
    DSV4_CHECK(false);
  else
    reached = true;
  EXPECT_TRUE(reached);
}

TEST(Check, InstallingReturnsTheHandlerReplaced) {
  EXPECT_EQ(set_check_handler(print_handler), nullptr);
  EXPECT_EQ(set_check_handler(other_handler), &print_handler);
  EXPECT_EQ(set_check_handler(nullptr), &other_handler);
  EXPECT_EQ(set_check_handler(nullptr), nullptr);
}

}  // namespace
}  // namespace dsv4
