#include "runtime/scheduler.h"

#include <algorithm>
#include <utility>

#include "base/math.h"

namespace dsv4 {

Scheduler::Scheduler(LoadedModel& model, LayerObserver* observer)
    : model_(model), observer_(observer), drawer_(model.backend()) {}

void Scheduler::add(std::unique_ptr<RequestRun> request) { waiting_.push_back(std::move(request)); }

// Calls it for all that have not ended, and forgets those that have ended then.
template <class Call>
void Scheduler::for_all(Call&& call) {
  for (const auto& request : running_) {
    if (!request->has_ended()) call(*request);
  }
  for (const auto& request : waiting_) {
    if (!request->has_ended()) call(*request);
  }
  drop_ended();
}

bool Scheduler::has_room(std::int64_t num_tokens) const {
  KvCache& cache = model_.cache();
  if (cache.state.states().num_free() == 0) return false;
  const auto ratios = cache.schema.compress_ratios();
  return std::all_of(ratios.begin(), ratios.end(), [&](int ratio) {
    const std::int64_t pages = ceil_div(num_tokens / ratio, cache.schema.page_rows);
    return pages <= cache.paged.pages(ratio).num_free();
  });
}

void Scheduler::admit() {
  for_all([](RequestRun& request) {
    if (request.is_cancelled()) request.finish(FinishReason::kCancelled);
  });
  // Nobody overtakes the first: a large request would wait for ever behind small ones.
  while (!waiting_.empty()) {
    RequestRun& first = *waiting_.front();
    if (has_room(first.cache_tokens())) {
      first.start(model_.cache());
      running_.push_back(std::move(waiting_.front()));
    } else if (running_.empty()) {
      first.fail(ErrorCode::kOverloaded,
                 "open Sessions hold the sessions or the cache memory that this request "
                 "needs; close some, or open the engine with more max_sessions or kv_tokens");
    } else {
      return;
    }
    waiting_.pop_front();
  }
}

std::vector<Scheduler::Part> Scheduler::plan_step() {
  std::int64_t budget = model_.model().options().max_step_tokens;
  const auto num_served =
      static_cast<std::size_t>(std::min<std::int64_t>(budget, std::ssize(running_)));
  budget -= static_cast<std::int64_t>(num_served);
  std::vector<Part> parts;
  for (std::size_t i = 0; i < num_served; ++i) {
    RequestRun& request = *running_[i];
    const std::int64_t num_pending = std::ssize(request.pending());
    const std::int64_t more = std::min(budget, num_pending - 1);
    budget -= more;
    parts.push_back({&request, 1 + more, request.draws_tokens() && 1 + more == num_pending});
  }
  // Those that got nothing come first next time.
  if (num_served < running_.size()) {
    std::rotate(running_.begin(), running_.begin() + static_cast<std::ptrdiff_t>(num_served),
                running_.end());
  }
  return parts;
}

void Scheduler::step() {
  if (running_.empty()) return;
  const std::vector<Part> parts = plan_step();
  try {
    compute(parts);
    draw(parts);
  } catch (...) {
    handle_current_exception([&](ErrorCode code, const std::string& message) {
      for (const Part& part : parts) {
        if (!part.request->has_ended()) part.request->fail(code, message);
      }
    });
  }
  drop_ended();
}

void Scheduler::compute(const std::vector<Part>& parts) {
  std::vector<TokenId> token_ids;
  std::vector<StepSequence> sequences;
  std::vector<std::int32_t> logits_rows;
  for (const Part& part : parts) {
    SequenceCache& sequence = part.request->sequence();
    sequences.push_back(
        {.cache = &sequence, .first_position = sequence.length(), .num_tokens = part.num_tokens});
    const auto chunk = part.request->pending().first(static_cast<std::size_t>(part.num_tokens));
    token_ids.insert(token_ids.end(), chunk.begin(), chunk.end());
    if (part.draws) logits_rows.push_back(static_cast<std::int32_t>(token_ids.size() - 1));
  }
  model_.model().forward(
      model_.cache(), {.token_ids = token_ids, .sequences = sequences, .logits_rows = logits_rows},
      observer_);
  for (const Part& part : parts) part.request->report_progress();
}

void Scheduler::draw(const std::vector<Part>& parts) {
  std::vector<RequestRun*> drawing;
  for (const Part& part : parts) {
    if (part.draws) drawing.push_back(part.request);
    // All of its prompt is computed, and nothing was asked for.
    if (!part.request->draws_tokens() && part.request->pending().empty()) {
      part.request->finish(FinishReason::kLength);
    }
  }
  if (drawing.empty()) return;
  const std::vector<DrawnToken> drawn = drawer_.draw(model_.model().logits(), drawing);
  for (std::size_t i = 0; i < drawing.size(); ++i) {
    drawing[i]->accept(drawn[i].token, drawn[i].model_logits);
  }
}

void Scheduler::drop_ended() {
  const auto has_ended = [](const auto& request) { return request->has_ended(); };
  std::erase_if(running_, has_ended);
  std::erase_if(waiting_, has_ended);
}

void Scheduler::cancel_all() {
  for_all([](RequestRun& request) { request.finish(FinishReason::kCancelled); });
}

void Scheduler::fail_all(ErrorCode code, const std::string& message) {
  for_all([&](RequestRun& request) { request.fail(code, message); });
}

EngineLoad Scheduler::load() const {
  KvCache& cache = model_.cache();
  EngineLoad load{.waiting_requests = std::ssize(waiting_),
                  .running_requests = std::ssize(running_),
                  .free_sessions = cache.state.states().num_free(),
                  .free_kv_pages = 0};
  for (const int ratio : cache.schema.compress_ratios()) {
    load.free_kv_pages += cache.paged.pages(ratio).num_free();
  }
  return load;
}

}  // namespace dsv4
