// checksum_test.cc: the digests of xxHash's own program, in any pieces, of bytes and of files.
#include "io/checksum.h"

#include <gtest/gtest.h>

#include <numeric>

#include "io/io_test_files.h"

namespace dsv4 {
namespace {

std::string digest_of(std::string_view text) {
  Checksum checksum;
  checksum.update(text);
  return checksum.hex();
}

// Digests printed by xxhsum 0.8.1.
TEST(Checksum, IsThatOfXxhsum) {
  EXPECT_EQ(digest_of(""), "99aa06d3014798d86001c324468d497f");
  EXPECT_EQ(digest_of("dsv4"), "aaaa6355078e3c4467d5da5414d0dacc");
}

TEST(Checksum, PiecesDoNotMatter) {
  std::string text(10'000, '\0');
  std::iota(text.begin(), text.end(), '\1');
  Checksum pieces;
  for (std::size_t at = 0; at < text.size(); at += 77) {
    pieces.update(std::string_view(text).substr(at, 77));
  }
  EXPECT_EQ(pieces.hex(), digest_of(text));
  text[5000] = static_cast<char>(text[5000] ^ 1);
  EXPECT_NE(pieces.hex(), digest_of(text));
}

TEST(Checksum, OfAFileWithProgress) {
  const TempDir dir;
  const std::string text((std::size_t{4} << 20) + 1, 'x');  // a piece and a byte
  put_file(dir / "f", text);
  std::vector<std::int64_t> done;
  EXPECT_EQ(checksum_of_file(dir / "f", [&](std::int64_t bytes) { done.push_back(bytes); }),
            digest_of(text));
  ASSERT_FALSE(done.empty());
  EXPECT_EQ(done.back(), std::ssize(text));
  put_file(dir / "empty", "");
  EXPECT_EQ(checksum_of_file(dir / "empty"), digest_of(""));
  expect_error(ErrorCode::kNotFound, {"missing"}, [&] { checksum_of_file(dir / "missing"); });
  expect_error(ErrorCode::kBadRequest, {"directory"}, [&] { checksum_of_file(dir.path()); });
}

}  // namespace
}  // namespace dsv4
