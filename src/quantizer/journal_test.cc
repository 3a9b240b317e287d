// journal_test.cc: which runs a journal takes for the same. Damaged journals, and that a run goes
// on from one: quantize_resume_test.cc.
#include "quantizer/journal.h"

#include <gtest/gtest.h>

#include "io/io_test_files.h"

namespace dsv4 {
namespace {

SourceFile file(const char* name) { return {name, {100, 5}, "checksum"}; }

void expect_other(const Journal& before, const Journal& now, const char* part) {
  expect_error(ErrorCode::kBadRequest, {part, "begin again in an empty directory"},
               [&] { before.require_same(now); });
}

TEST(Journal, SameRunIsTheSame) {
  const Journal run({{"--layout", "modelopt"}}, {file("a"), file("b")});
  EXPECT_NO_THROW(run.require_same(run));
}

// An index that was deleted: the shards that are left are what they were.
TEST(Journal, SourceThatLostOrGainedAFileIsAnother) {
  const Journal two({}, {file("a"), file("b")}), one({}, {file("a")});
  expect_other(two, one, "other files");
  expect_other(one, two, "\"b\"");
}

TEST(Journal, EachPartOfAFileCounts) {
  const Journal before({}, {file("a")});
  SourceFile longer = file("a"), younger = file("a"), other = file("a");
  longer.stamp.size_bytes += 1;
  younger.stamp.modified_ns += 1;
  other.checksum = "another";
  for (const SourceFile& now : {longer, younger, other}) {
    expect_other(before, Journal({}, {now}), "\"a\"");
  }
}

TEST(Journal, OptionsThatDifferOrAreMissing) {
  const Journal before({{"--layout", "modelopt"}}, {});
  expect_other(before, Journal({{"--layout", "other"}}, {}), "--layout");
  expect_other(before, Journal({{"--layout", "modelopt"}, {"--new", "on"}}, {}), "--new");
  EXPECT_THROW(before.require_same(Journal({}, {})), Error);
}

}  // namespace
}  // namespace dsv4
