// token_ids_test.cc: both ways, and words that are no ids.
#include "text/token_ids.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "dsv4/error.h"

namespace dsv4 {
namespace {

TEST(TokenIds, AnySeparators) {
  EXPECT_EQ(parse_token_ids("[0, 1,2]\r\n\t2147483647 007"),
            (std::vector<TokenId>{0, 1, 2, 2147483647, 7}));
  EXPECT_TRUE(parse_token_ids("").empty());
  EXPECT_TRUE(parse_token_ids(" ,[]\n").empty());
}

TEST(TokenIds, FormattedOnesComeBack) {
  EXPECT_EQ(format_token_ids({}), "");
  EXPECT_EQ(format_token_ids({0, 5, 129279}), "0 5 129279");
  EXPECT_EQ(parse_token_ids(format_token_ids({0, 5, 129279})),
            (std::vector<TokenId>{0, 5, 129279}));
}

TEST(TokenIds, WordsThatAreNoIdsAreNamed) {
  const auto message = [](std::string_view text) -> std::string {
    try {
      parse_token_ids(text);
    } catch (const Error& e) {
      EXPECT_EQ(e.code(), ErrorCode::kBadRequest);
      return e.what();
    }
    return "accepted";
  };
  for (const char* word :
       {"-1", "+1", "1.0", "0x10", "x", "2147483648", "1;2", "18446744073709551616"}) {
    const std::string want = fmt::format("\"{}\" at byte 4 is no token id", word);
    EXPECT_EQ(message(fmt::format("1, [{}]", word)).find(want), 0u) << message(word);
  }
  // No control characters, and not the whole of a long word.
  EXPECT_EQ(message("\x1b[31m").find("\"?\" at byte 0"), 0u);
  EXPECT_LT(message(std::string(100'000, 'x')).size(), 200u);
}

}  // namespace
}  // namespace dsv4
