// Hyper-connections: what is refused, and what a call costs.
#include <gtest/gtest.h>

#include <limits>
#include <vector>

#include "ops/mhc.h"
#include "testing/refusals.h"
#include "testing/test_matrix.h"

namespace dsv4::testing {
namespace {

struct HcCall {
  HostMatrix x{bf16_spec(), 2, 64};
  HostMatrix y{bf16_spec(), 2, 16};
  HostMatrix mix_weight{f32_spec(), 24, 64};
  HostMatrix norm_weight{bf16_spec(), 1, 16};
  HostMatrix out{f32_spec(), 2, 16};
  HostMatrix copies_out{f32_spec(), 2, 64};
  std::vector<float> numbers = std::vector<float>(64);
  HcPreParams pre;
  HcPostParams post;
  HcHeadParams head;
  HcCall() {
    pre.x = post.x = head.x = x.view();
    pre.copies = post.copies = head.copies = 4;
    pre.mix_weight = head.mix_weight = mix_weight.view();
    head.mix_weight.rows = 4;
    pre.scales = head.scale = numbers.data();
    pre.base = head.base = numbers.data();
    pre.sinkhorn_iters = 20;
    pre.norm_weight = head.norm_weight = norm_weight.view();
    pre.out = head.out = out.mutable_view();
    pre.post = pre.comb = numbers.data();
    post.y = y.view();
    post.post = post.comb = numbers.data();
    post.out = copies_out.mutable_view();
    check(pre);
    check(post);
    check(head);
  }
};

TEST(HcRefuses, ShapesThatDoNotMatch) {
  HcCall call;
  call.pre.mix_weight.rows = 23;
  expect_refused(call.pre, {"HcPreParams.mix_weight.rows", "23", "(2 + copies) * copies = 24"});
  call.head.mix_weight.rows = 24;
  expect_refused(call.head, {"HcHeadParams.mix_weight.rows", "24", "copies = 4"});
  call.post.y.cols = 15;
  expect_refused(call.post, {"HcPostParams.y.cols", "15", "x.cols / copies = 16"});
  call = {};
  call.pre.out.cols = 17;
  call.pre.out.row_stride = 17;
  expect_refused(call.pre, {"HcPreParams.out.cols", "17", "x.cols / copies = 16"});
  call.pre.x.cols = 62;
  expect_refused(call.pre, {"HcPreParams.x.cols", "62", "multiple of copies = 4"});
  call.head.norm_weight.cols = 8;
  expect_refused(call.head, {"HcHeadParams.norm_weight.cols", "8", "x.cols / copies = 16"});
  call.post.out.rows = 1;
  expect_refused(call.post, {"HcPostParams.out.rows", "1", "x.rows = 2"});
  call = {};
  call.pre.mix_weight.format = Format::kBf16;
  expect_refused(call.pre, {"HcPreParams.mix_weight.format", "BF16", "F32"});
}

TEST(HcRefuses, NumbersOutOfRange) {
  for (const int copies : {0, -1}) {
    HcCall call;
    call.pre.copies = call.post.copies = call.head.copies = copies;
    expect_refused(call.pre, {"HcPreParams.copies", "at least 1"});
    expect_refused(call.post, {"HcPostParams.copies", "at least 1"});
    expect_refused(call.head, {"HcHeadParams.copies", "at least 1"});
  }
  HcCall call;
  call.pre.copies = 1 << 30;
  expect_refused(call.pre, {"HcPreParams.copies", "1073741824", "1024"});
  call = {};
  call.pre.sinkhorn_iters = 0;
  expect_refused(call.pre, {"HcPreParams.sinkhorn_iters", "0", "at least 1"});
  call = {};
  call.pre.hc_eps = std::numeric_limits<float>::quiet_NaN();
  expect_refused(call.pre, {"HcPreParams.hc_eps", "nan"});
  call.head.norm_eps = -1;
  expect_refused(call.head, {"HcHeadParams.norm_eps", "-1"});
}

TEST(HcRefuses, MissingArrays) {
  HcCall call;
  call.pre.scales = nullptr;
  expect_refused(call.pre, {"HcPreParams.scales", "null", "[3]"});
  call.head.scale = nullptr;
  expect_refused(call.head, {"HcHeadParams.scale", "null"});
  call.post.comb = nullptr;
  expect_refused(call.post, {"HcPostParams.comb", "null"});
  call = {};
  call.pre.base = nullptr;
  expect_refused(call.pre, {"HcPreParams.base", "null"});
  call = {};
  call.pre.comb = nullptr;
  expect_refused(call.pre, {"HcPreParams.comb", "null"});
  call.post.post = nullptr;
  expect_refused(call.post, {"HcPostParams.post", "null"});
}

TEST(HcCost, CountsBytesOnce) {
  const HcCall call;
  EXPECT_EQ(cost(call.post).bytes_read, 2 * 64 * 2 + 2 * 16 * 2 + 2 * (4 + 16) * 4);
  EXPECT_EQ(cost(call.post).bytes_written, 2 * 64 * 4);
  EXPECT_EQ(cost(call.post).flops, 2.0 * 2 * 64 * 5);
  EXPECT_EQ(cost(call.pre).bytes_written, 2 * 16 * 4 + 2 * (4 + 16) * 4);
  EXPECT_EQ(cost(call.head).bytes_read, 2 * 64 * 2 + 4 * 64 * 4 + 16 * 2 + 4 * 4 + 4);
}

}  // namespace
}  // namespace dsv4::testing
