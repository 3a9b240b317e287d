// What all ops have in common at their door: the check first, then the support, then the workspace,
// each refusal naming the op. Of every backend: the order of work on streams, and the count of
// memory.
#include "ops/backend.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "ops/host_backend.h"
#include "testing/check_message.h"
#include "testing/each_backend.h"

namespace dsv4 {
namespace {

template <class... Params>
std::vector<std::string_view> names_of(const OpSet<Params...>*) {
  return {Params::kOpName...};
}

TEST(Ops, EachHasANameOfItsOwn) {
  const auto names = names_of(static_cast<const AllOps*>(nullptr));
  const std::set<std::string_view> distinct(names.begin(), names.end());
  EXPECT_EQ(distinct.size(), names.size());
  EXPECT_FALSE(distinct.contains(""));
}

MoeCombineParams combine_params() {
  static float values[4] = {};
  static const std::int32_t rows[1] = {0};
  MoeCombineParams params;
  params.expert_out = f32_matrix(values, 1, 2);
  params.token_rows = rows;
  params.experts_per_token = 1;
  params.out = f32_matrix(values + 2, 1, 2);
  return params;
}

template <class Params>
std::string refusal(OpImplementation<Params>&& op, const Params& params) {
  try {
    op.run(params);
  } catch (const Error& error) {
    return std::string(to_string(error.code())) + ": " + error.what();
  }
  return "no error";
}

class OnlyWithReason final : public OpImplementation<MoeCombineParams> {
 public:
  Support supports(const MoeCombineParams&) const override { return {false, "it is Sunday"}; }
};

class WithWorkspace final : public OpImplementation<MoeCombineParams> {
 public:
  Support supports(const MoeCombineParams&) const override { return {}; }
  std::int64_t workspace_bytes(const MoeCombineParams&) const override { return 8; }
};

TEST(Ops, AnUnsupportedOpIsNamedWithTheReason) {
  EXPECT_EQ(refusal(OpImplementation<MoeCombineParams>(), combine_params()),
            "unsupported: the op moe_combine cannot run: this backend has no such op");
  EXPECT_EQ(refusal<MoeCombineParams>(OnlyWithReason(), combine_params()),
            "unsupported: the op moe_combine cannot run: it is Sunday");
}

TEST(Ops, BadParamsAreRefusedBeforeTheOpIs) {
  MoeCombineParams params = combine_params();
  params.experts_per_token = -1;
  EXPECT_THAT(refusal(OpImplementation<MoeCombineParams>(), params),
              ::testing::StartsWith("bad request: "));
}

TEST(OpsDeathTest, AWorkspaceTooSmallIsABugOfTheCaller) {
  const CheckMessages messages;
  WithWorkspace op;
  EXPECT_DEATH(op.run(combine_params(), {.workspace_bytes = 7}), "moe_combine: workspace of 7");
  op.run(combine_params(), {.workspace_bytes = 8});
}

// The first stream has fills queued for a millisecond or more when the second one's copy comes:
// without the event it would copy what an earlier fill left.
TEST_EACH_BACKEND(Streams, AnEventHoldsOneStreamUntilAnotherIsThere) {
  const std::int64_t bytes = backend.uses_host_memory() ? 1 << 12 : 64 << 20;
  const auto first = backend.create_stream(), second = backend.create_stream();
  const auto event = backend.create_event();
  const DeviceBuffer from = backend.allocate(bytes), to = backend.allocate(bytes);
  std::vector<std::uint8_t> got(static_cast<std::size_t>(bytes));
  for (int round = 0; round < 3; ++round) {  // the mark moves from round to round
    for (int i = 0; i < 100; ++i) {
      backend.fill(from.data(), static_cast<std::uint8_t>(i), bytes, first->get());
    }
    const auto last = static_cast<std::uint8_t>(200 + round);
    backend.fill(from.data(), last, bytes, first->get());
    event->record(first->get());
    event->hold(second->get());
    backend.copy_on_device(to.data(), from.data(), bytes, second->get());
    backend.copy_to_host(got.data(), to.data(), bytes, second->get());
    backend.synchronize(second->get());
    EXPECT_EQ(std::count(got.begin(), got.end(), last), bytes);
  }
}

// What the second stream copies has no order but that of the host, which waited for the first.
TEST_EACH_BACKEND(Streams, TheHostWaitsForAnEvent) {
  const std::int64_t bytes = backend.uses_host_memory() ? 1 << 12 : 64 << 20;
  const auto first = backend.create_stream(), second = backend.create_stream();
  const auto start = backend.create_event(), end = backend.create_event();
  const DeviceBuffer buffer = backend.allocate(bytes);
  std::vector<std::uint8_t> got(static_cast<std::size_t>(bytes));
  start->record(first->get());
  for (int i = 0; i < 100; ++i) {
    backend.fill(buffer.data(), static_cast<std::uint8_t>(i), bytes, first->get());
  }
  end->record(first->get());
  end->synchronize();
  backend.copy_to_host(got.data(), buffer.data(), bytes, second->get());
  backend.synchronize(second->get());
  EXPECT_EQ(std::count(got.begin(), got.end(), 99), bytes);
  EXPECT_GT(end->seconds_since(*start), 0);
  EXPECT_EQ(end->seconds_since(*end), 0);
  EXPECT_LT(start->seconds_since(*end), 0);
}

// Null is the default stream for events too.
TEST_EACH_BACKEND(Streams, TheDefaultStreamIsHeldAndMarkedLikeAnyOther) {
  const std::int64_t bytes = backend.uses_host_memory() ? 1 << 12 : 64 << 20;
  const auto stream = backend.create_stream();
  const auto event = backend.create_event();
  const DeviceBuffer buffer = backend.allocate(bytes);
  std::vector<std::uint8_t> got(static_cast<std::size_t>(bytes));
  for (const auto& [from, to] :
       {std::pair(DeviceStream{}, stream->get()), std::pair(stream->get(), DeviceStream{})}) {
    for (int i = 0; i < 100; ++i) {
      backend.fill(buffer.data(), static_cast<std::uint8_t>(i), bytes, from);
    }
    event->record(from);
    event->hold(to);
    backend.copy_to_host(got.data(), buffer.data(), bytes, to);
    backend.synchronize(to);
    EXPECT_EQ(std::count(got.begin(), got.end(), 99), bytes);
  }
}

TEST_EACH_BACKEND(Streams, AnEventWithoutAMarkHoldsNothing) {
  const auto event = backend.create_event();
  event->hold({});
  event->synchronize();
  backend.synchronize();
}

TEST(StreamsDeathTest, SecondsFromAnEventWithoutAMarkAreABugOfTheCaller) {
  const CheckMessages messages;
  HostEvent marked, unmarked;
  marked.record({});
  EXPECT_DEATH(marked.seconds_since(unmarked), "one was not recorded");
  EXPECT_DEATH(unmarked.seconds_since(marked), "one was not recorded");
}

TEST_EACH_BACKEND(Memory, LiveBytesAreCountedAsTheyWereAskedFor) {
  std::vector<DeviceBuffer> buffers;
  std::int64_t sum = 0;
  for (const std::int64_t bytes : {0, 1, 255, 256, 257}) {
    buffers.push_back(backend.allocate(bytes));
    sum += bytes;
    EXPECT_EQ(buffers.back().size_bytes(), bytes);
    EXPECT_EQ(backend.allocated_bytes(), sum);
    EXPECT_GE(backend.reserved_bytes(), sum);
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(buffers.back().data()) % 256, 0u) << bytes;
  }
  buffers.erase(buffers.begin() + 3);
  EXPECT_EQ(backend.allocated_bytes(), sum - 256);
  buffers.clear();
  EXPECT_EQ(backend.allocated_bytes(), 0);
  backend.trim();
  EXPECT_EQ(backend.reserved_bytes(), 0);
}

// Each thread fills its buffers with a byte of its own: memory given out twice would show another.
TEST_EACH_BACKEND(Memory, ManyThreadsAllocateAndFree) {
  constexpr int kThreads = 8, kRounds = 20;
  std::vector<std::int64_t> wrong(kThreads);
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&backend, &wrong, t] {
      const auto stream = backend.create_stream();
      const auto byte = static_cast<std::uint8_t>(t + 1);
      for (int round = 0; round < kRounds; ++round) {
        const std::int64_t bytes = 1 + (t * 7919 + round * 104729) % 100000;
        const DeviceBuffer buffer = backend.allocate(bytes);
        backend.fill(buffer.data(), byte, bytes, stream->get());
        const DeviceBuffer second = backend.allocate(bytes);
        backend.copy_on_device(second.data(), buffer.data(), bytes, stream->get());
        std::vector<std::uint8_t> got(static_cast<std::size_t>(bytes));
        backend.copy_to_host(got.data(), second.data(), bytes, stream->get());
        backend.synchronize(stream->get());
        wrong[static_cast<std::size_t>(t)] += bytes - std::count(got.begin(), got.end(), byte);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_THAT(wrong, ::testing::Each(0));
  EXPECT_EQ(backend.allocated_bytes(), 0);
}

}  // namespace
}  // namespace dsv4
