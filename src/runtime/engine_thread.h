// engine_thread.h: the one thread that computes, and the mailbox through which all others reach
// the model. What a step holds is scheduler.h's matter.
#pragma once

#include <condition_variable>
#include <functional>
#include <future>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "dsv4/engine.h"
#include "runtime/loaded_model.h"
#include "runtime/model_session.h"
#include "runtime/request_run.h"
#include "runtime/scheduler.h"

namespace dsv4 {

// Safe to use from several threads. Its model and all sessions on it are used by its thread alone,
// and under its lock when that has ended.
class EngineThread {
 public:
  EngineThread(std::unique_ptr<LoadedModel> model, int max_waiting);
  ~EngineThread();

  // Throws Error: kOverloaded, kBadRequest after stop().
  void submit(std::unique_ptr<RequestRun> request);
  // Runs `call` between two steps and waits for it. Throws what it throws, and Error kBadRequest
  // after stop().
  void call(std::function<void(LoadedModel&)> call);
  // Destroys `session` between two steps.
  void retire(std::unique_ptr<ModelSession> session) noexcept;
  EngineLoad load() const;

  // Waits for the step in progress, cancels all requests and ends the thread. May be called again.
  void stop();

 private:
  using Call = std::packaged_task<void(LoadedModel&)>;
  struct Mail {
    std::vector<std::unique_ptr<RequestRun>> requests;
    std::vector<Call> calls;
    std::vector<std::unique_ptr<ModelSession>> retired;
    bool empty() const { return requests.empty() && calls.empty() && retired.empty(); }
  };

  void run();
  // Whether the engine goes on after this mail.
  bool take_mail(bool waits, Mail& mail);
  void publish(const Scheduler& scheduler);

  std::unique_ptr<LoadedModel> model_;
  const int max_waiting_;

  mutable std::mutex mutex_;
  std::condition_variable has_mail_;
  Mail mail_;
  EngineLoad load_;
  bool stopping_ = false;  // no requests and calls any more
  bool ended_ = false;     // the thread does not touch the model any more

  std::thread thread_;
};

}  // namespace dsv4
