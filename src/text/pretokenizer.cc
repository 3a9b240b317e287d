// pretokenizer.cc: PCRE2 behind Pretokenizer, and the limits that keep a bad pattern from hanging.
#define PCRE2_CODE_UNIT_WIDTH 8
#include "text/pretokenizer.h"

#include <pcre2.h>

#include <algorithm>
#include <chrono>
#include <cstdint>

#include "base/error.h"
#include "text/pattern.h"
#include "text/strict_json.h"
#include "text/utf8.h"

namespace dsv4 {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::size_t kMaxSplits = 16;  // V4 has three; splits nest
constexpr std::size_t kMaxPatternBytes = 4096;
constexpr std::uint32_t kHeapLimitKiB = 64 * 1024;

// PCRE2 counts backtracking steps anew at each start position. V4's patterns take about one step a
// character; a pattern that needs more than this is refused ...
std::uint64_t step_limit(std::size_t piece_bytes) {
  return 100'000 + 8 * std::uint64_t{piece_bytes};
}
// ... and one that stays just below it everywhere meets the clock, looked at every so many possible
// steps (about a second of the slowest matching).
constexpr std::uint64_t kStepsPerClockLook = std::uint64_t{1} << 28;

// Starts tried in one call, at the least. Without JIT, PCRE2 looks for the first possible start up
// to the end of the piece, not of the window: short windows would make long texts quadratic.
constexpr std::uint64_t kMinWindow = 2048;

struct FreeCode {
  void operator()(pcre2_code* code) const { pcre2_code_free(code); }
};
struct FreeMatchData {
  void operator()(pcre2_match_data* data) const { pcre2_match_data_free(data); }
};
struct FreeMatchContext {
  void operator()(pcre2_match_context* context) const { pcre2_match_context_free(context); }
};
using Code = std::unique_ptr<pcre2_code, FreeCode>;

std::string pcre2_message(int error) {
  PCRE2_UCHAR text[256];
  if (pcre2_get_error_message(error, text, sizeof(text)) < 0) return fmt::format("error {}", error);
  return reinterpret_cast<const char*>(text);
}

Code compile(std::string_view pattern, std::string_view where) {
  require(pattern.size() <= kMaxPatternBytes, ErrorCode::kUnsupported,
          "{}: the pattern has {} bytes; at most {} are taken", where, pattern.size(),
          kMaxPatternBytes);
  const std::string translated = to_pcre2(pattern, where);
  int error = 0;
  PCRE2_SIZE error_at = 0;
  constexpr std::uint32_t kOptions =
      PCRE2_UTF | PCRE2_UCP | PCRE2_NEVER_BACKSLASH_C | PCRE2_USE_OFFSET_LIMIT;
  Code code(pcre2_compile(reinterpret_cast<PCRE2_SPTR>(translated.data()), translated.size(),
                          kOptions, &error, &error_at, nullptr));
  require(code != nullptr, ErrorCode::kBadCheckpoint,
          "{}: the pattern does not compile: {} (at byte {} of {})", where, pcre2_message(error),
          error_at, quote(translated));
  std::uint32_t matches_empty = 0;
  pcre2_pattern_info(code.get(), PCRE2_INFO_MATCHEMPTY, &matches_empty);
  require(matches_empty == 0, ErrorCode::kBadCheckpoint,
          "{}: the pattern matches the empty text, so it cuts nowhere and everywhere", where);
  // Without JIT (not built in, or no executable memory) pcre2_match interprets.
  pcre2_jit_compile(code.get(), PCRE2_JIT_COMPLETE);
  return code;
}

}  // namespace

std::chrono::nanoseconds split_time_limit(std::size_t text_bytes) {
  return std::chrono::seconds(30 + 30 * static_cast<std::int64_t>(text_bytes >> 20));
}

struct Pretokenizer::Impl {
  std::vector<Code> splits;
  std::vector<std::string> names;
};

Pretokenizer::Pretokenizer(const std::vector<std::string>& patterns, std::string_view where) {
  require(patterns.size() <= kMaxSplits, ErrorCode::kUnsupported,
          "{}: {} splits; at most {} are implemented", where, patterns.size(), kMaxSplits);
  auto impl = std::make_unique<Impl>();
  for (std::size_t i = 0; i < patterns.size(); ++i) {
    impl->names.push_back(fmt::format("{}: split {}", where, i));
    impl->splits.push_back(compile(patterns[i], impl->names.back()));
  }
  impl_ = std::move(impl);
}
Pretokenizer::Pretokenizer(Pretokenizer&&) noexcept = default;
Pretokenizer::~Pretokenizer() = default;

struct Pretokenizer::Run::State {
  struct Range {
    std::size_t begin, end;
  };

  State(const Pretokenizer::Impl& pretokenizer_impl, std::chrono::nanoseconds time_limit)
      : impl(pretokenizer_impl),
        deadline(Clock::now() + time_limit),
        data(pcre2_match_data_create(1, nullptr)),
        context(pcre2_match_context_create(nullptr)) {
    if (data == nullptr || context == nullptr) throw std::bad_alloc();
    pcre2_set_heap_limit(context.get(), kHeapLimitKiB);
  }

  // The next match of one split in `piece` at or after `from`; empty at the end when there is none.
  Range find(std::size_t split_idx, std::string_view piece, std::size_t from) {
    const std::uint64_t steps = step_limit(piece.size());
    pcre2_set_match_limit(context.get(), static_cast<std::uint32_t>(steps));
    const std::uint64_t window = std::max(kStepsPerClockLook / steps, kMinWindow);
    while (from < piece.size()) {
      std::size_t last_start = piece.size();
      if (piece.size() - from > window) {
        last_start = from + window;
        while ((piece[last_start] & 0xC0) == 0x80) --last_start;  // to the start of a character
      }
      look_at_clock(split_idx, steps * (last_start - from));
      const int count = match(split_idx, piece, from, last_start);
      if (count > 0) {
        const PCRE2_SIZE* bounds = pcre2_get_ovector_pointer(data.get());
        return {bounds[0], bounds[1]};
      }
      if (last_start == piece.size()) break;
      from = last_start + next_utf8(piece.substr(last_start)).num_bytes;
    }
    return {piece.size(), piece.size()};
  }

  // > 0: matched. 0 or less: no match that begins in [from, last_start].
  int match(std::size_t split_idx, std::string_view piece, std::size_t from,
            std::size_t last_start) {
    const pcre2_code* code = impl.splits[split_idx].get();
    const auto* subject = reinterpret_cast<PCRE2_SPTR>(piece.data());
    pcre2_set_offset_limit(context.get(), last_start);
    const auto attempt = [&](std::uint32_t options) {
      return pcre2_match(code, subject, piece.size(), from, options | PCRE2_NO_UTF_CHECK,
                         data.get(), context.get());
    };
    int count = attempt(0);
    // The JIT's stack is the thread's first 32 KiB; the interpreter has the heap.
    if (count == PCRE2_ERROR_JIT_STACKLIMIT) count = attempt(PCRE2_NO_JIT);
    if (count >= 0) return std::max(count, 1);  // 0: more captures than we keep
    if (count == PCRE2_ERROR_NOMATCH) return 0;
    if (count == PCRE2_ERROR_NOMEMORY) throw std::bad_alloc();
    fail(ErrorCode::kUnsupported, "{}: on a piece of {} bytes: {}; the pattern backtracks too much",
         impl.names[split_idx], piece.size(), pcre2_message(count));
  }

  void look_at_clock(std::size_t split_idx, std::uint64_t possible_steps) {
    unlooked_steps += possible_steps;
    if (unlooked_steps < kStepsPerClockLook) return;
    unlooked_steps = 0;
    require(Clock::now() < deadline, ErrorCode::kUnsupported,
            "{}: matching takes too long; the pattern backtracks too much", impl.names[split_idx]);
  }

  void split(std::size_t split_idx, std::string_view piece,
             const std::function<void(std::string_view)>& take) {
    if (piece.empty()) return;
    if (split_idx == impl.splits.size()) return take(piece);
    for (std::size_t at = 0; at < piece.size();) {
      const Range range = find(split_idx, piece, at);
      split(split_idx + 1, piece.substr(at, range.begin - at), take);
      split(split_idx + 1, piece.substr(range.begin, range.end - range.begin), take);
      at = range.end;
    }
  }

  const Pretokenizer::Impl& impl;
  Clock::time_point deadline;
  std::uint64_t unlooked_steps = 0;
  std::unique_ptr<pcre2_match_data, FreeMatchData> data;
  std::unique_ptr<pcre2_match_context, FreeMatchContext> context;
};

Pretokenizer::Run::Run(const Pretokenizer& pretokenizer, std::chrono::nanoseconds time_limit)
    : state_(std::make_unique<State>(*pretokenizer.impl_, time_limit)) {}
Pretokenizer::Run::~Run() = default;

void Pretokenizer::Run::split(std::string_view text,
                              const std::function<void(std::string_view)>& take) {
  state_->split(0, text, take);
}

}  // namespace dsv4
