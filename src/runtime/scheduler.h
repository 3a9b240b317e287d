// scheduler.h: decides which requests run and what each step computes, and runs the steps. Threads
// and the outside world are engine_thread.h's matter.
//
// A request starts, in the order of arrival, when a session is free and the cache has room for all
// that it may ever need; so what has started can always end. In a step each running request gets
// one token in turn, then prompts share what is left of max_step_tokens, the oldest first.
#pragma once

#include <cstdint>
#include <deque>
#include <exception>
#include <memory>
#include <new>
#include <string>
#include <vector>

#include "dsv4/engine.h"
#include "runtime/loaded_model.h"
#include "runtime/request_run.h"
#include "runtime/token_drawer.h"

namespace dsv4 {

// Belongs to the thread of its model. The model, and what holds other sessions of its cache, is the
// caller's.
class Scheduler {
 public:
  // `observer`, if not null, sees the layers of each step. Both must outlive the scheduler.
  explicit Scheduler(LoadedModel& model, LayerObserver* observer = nullptr);

  void add(std::unique_ptr<RequestRun> request);
  bool has_work() const { return !waiting_.empty() || !running_.empty(); }

  // Ends requests that were cancelled and starts those for which there is room. If nothing runs and
  // the first still finds no room, other sessions hold the cache: it fails with kOverloaded.
  void admit();
  // Computes one step, if anything runs. What goes wrong in it ends the requests of that step with
  // an error event; the others go on.
  void step();
  void cancel_all();
  void fail_all(ErrorCode code, const std::string& message);

  EngineLoad load() const;

 private:
  // Consecutive tokens of one request in a step.
  struct Part {
    RequestRun* request;
    std::int64_t num_tokens;
    bool draws;  // its last known token is among them, and a token is to be drawn after it
  };
  bool has_room(std::int64_t num_tokens) const;
  std::vector<Part> plan_step();
  void compute(const std::vector<Part>& parts);
  void draw(const std::vector<Part>& parts);
  template <class Call>
  void for_all(Call&& call);
  void drop_ended();

  LoadedModel& model_;
  LayerObserver* observer_;
  TokenDrawer drawer_;
  std::deque<std::unique_ptr<RequestRun>> waiting_;
  std::vector<std::unique_ptr<RequestRun>> running_;  // next to be served first
};

// Calls `on_error` with the code and message of the exception that is being handled.
template <class OnError>
void handle_current_exception(OnError&& on_error) {
  try {
    throw;
  } catch (const Error& error) {
    on_error(error.code(), std::string(error.what()));
  } catch (const std::bad_alloc&) {
    on_error(ErrorCode::kOutOfMemory, std::string("out of host memory; shorten the requests"));
  } catch (const std::exception& error) {
    on_error(ErrorCode::kInternal, std::string(error.what()));
  } catch (...) {
    on_error(ErrorCode::kInternal, std::string("an exception of unknown type"));
  }
}

}  // namespace dsv4
