#include "runtime/request_run.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <iterator>
#include <limits>
#include <utility>

#include "base/check.h"
#include "runtime/logprobs.h"
#include "runtime/sampler.h"

namespace dsv4 {
namespace {

bool can_be_drawn_from(std::span<const float> logits) {
  const auto is_nan = [](float logit) { return std::isnan(logit); };
  const auto is_candidate = [](float logit) {
    return logit > -std::numeric_limits<float>::infinity();
  };
  return std::none_of(logits.begin(), logits.end(), is_nan) &&
         std::any_of(logits.begin(), logits.end(), is_candidate);
}

}  // namespace

RequestRun::RequestRun(PreparedRequest request, std::shared_ptr<EventQueue> events,
                       const Tokenizer* tokenizer)
    : request_(std::move(request)),
      events_(std::move(events)),
      penalties_(request_.sampling, request_.prompt),
      text_(tokenizer, request_.stop_strings),
      tokens_(request_.prompt) {
  events_->set_prompt_progress(0, std::ssize(request_.prompt));
}

void RequestRun::start(KvCache& cache) {
  SequenceCache sequence(cache);
  sequence.reserve(cache_tokens());
  sequence_.emplace(std::move(sequence));
  start_ = Clock::now();
}

std::span<const TokenId> RequestRun::pending() const {
  return std::span(tokens_).subspan(static_cast<std::size_t>(sequence_->length()));
}

void RequestRun::report_progress() {
  const std::int64_t prompt_tokens = std::ssize(request_.prompt);
  events_->set_prompt_progress(std::min(sequence_->length(), prompt_tokens), prompt_tokens);
}

std::int64_t RequestRun::num_drawn() const {
  return static_cast<std::int64_t>(tokens_.size() - request_.prompt.size());
}

// Without a token the prompt is all that took time.
Timings RequestRun::timings() const {
  if (!start_) return {};
  const auto seconds = [](Clock::time_point begin, Clock::time_point end) {
    return std::chrono::duration<double>(end - begin).count();
  };
  if (!first_token_) return {.prompt_seconds = seconds(*start_, Clock::now())};
  return {.prompt_seconds = seconds(*start_, *first_token_),
          .decode_seconds = seconds(*first_token_, *last_token_)};
}

SamplingRow RequestRun::sampling_row() const {
  SamplingRow row = request_.row;
  row.position = static_cast<std::int64_t>(tokens_.size());
  return row;
}

void RequestRun::accept(TokenId token, std::span<const float> logits) {
  if (token < 0) {
    const auto position = std::ssize(tokens_);
    if (can_be_drawn_from(logits)) {
      fail(ErrorCode::kBadRequest,
           fmt::format("no token can be drawn for position {}: logit_bias and penalties forbid all "
                       "that the model allows",
                       position));
    } else {
      fail(ErrorCode::kBadCheckpoint, bad_logits_message(position));
    }
    return;
  }
  tokens_.push_back(token);
  last_token_ = Clock::now();
  if (!first_token_) first_token_ = last_token_;
  penalties_.count(token);
  TokenEvent event{.token = token, .text = {}, .logprob = {}, .top_logprobs = {}};
  if (wants_logprobs()) {
    const Logprobs logprobs(logits);
    event.logprob = logprobs.of(token);
    event.top_logprobs = logprobs.top(*request_.logprobs);
  }
  const auto& stops = request_.stop_tokens;
  const bool is_stop = std::find(stops.begin(), stops.end(), token) != stops.end();
  if (!is_stop) event.text = text_.push(token);
  events_->push(std::move(event));
  if (is_stop || text_.stop_string()) {
    finish(FinishReason::kStop);
  } else if (num_drawn() == request_.max_tokens) {
    finish(FinishReason::kLength);
  }
}

void RequestRun::finish(FinishReason reason) {
  FinishEvent event{
      .reason = reason, .text = text_.finish(), .stop_string = {}, .usage = {}, .timings = {}};
  if (text_.stop_string()) {
    event.reason = FinishReason::kStop;
    event.stop_string = *text_.stop_string();
  }
  event.usage = {static_cast<std::int64_t>(request_.prompt.size()), num_drawn()};
  event.timings = timings();
  end(std::move(event));
}

void RequestRun::fail(ErrorCode code, const std::string& message) {
  end(ErrorEvent{code, message});
}

void RequestRun::end(Event event) {
  DSV4_CHECK(!has_ended_);
  has_ended_ = true;
  sequence_.reset();
  events_->push(std::move(event));
}

}  // namespace dsv4
