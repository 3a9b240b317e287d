// pretokenizer.h: cuts text into the pieces that BPE encodes one by one. Regular expressions only;
// added tokens are cut out before, bytes are handled after.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace dsv4 {

// Far above what V4's patterns take (about 0.1 s a MiB): ends a pattern that would run for days.
std::chrono::nanoseconds split_time_limit(std::size_t text_bytes);

// Immutable, shared between threads; a Run holds what one call needs.
class Pretokenizer {
 public:
  // One pattern a split, as the tokenizer.json writes it. Throws Error: kBadCheckpoint for a
  // pattern that does not compile or matches the empty text, kUnsupported for one outside
  // pattern.h's subset.
  Pretokenizer(const std::vector<std::string>& patterns, std::string_view where);
  Pretokenizer(Pretokenizer&&) noexcept;
  ~Pretokenizer();

  // The cutting of the stretches of one text; belongs to one thread.
  class Run {
   public:
    // `time_limit` holds for all stretches together.
    Run(const Pretokenizer& pretokenizer, std::chrono::nanoseconds time_limit);
    ~Run();

    // Calls `take` with the pieces of `text` in order; none is empty, together they are `text`,
    // which is valid UTF-8. The first pattern cuts it into its matches and what lies between them,
    // the second each of those pieces by itself, and so on. Throws Error kUnsupported when a
    // pattern backtracks past its limits.
    void split(std::string_view text, const std::function<void(std::string_view)>& take);

   private:
    struct State;
    std::unique_ptr<State> state_;
  };

 private:
  struct Impl;
  std::unique_ptr<const Impl> impl_;
};

}  // namespace dsv4
