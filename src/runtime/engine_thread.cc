#include "runtime/engine_thread.h"

#include <utility>

#include "base/error.h"

namespace dsv4 {
namespace {

void require_running(bool is_stopped) {
  require(!is_stopped, ErrorCode::kBadRequest, "the engine was closed; open another");
}

}  // namespace

EngineThread::EngineThread(std::unique_ptr<LoadedModel> model, int max_waiting)
    : model_(std::move(model)),
      max_waiting_(max_waiting),
      load_(Scheduler(*model_).load()),
      thread_([this] { run(); }) {}

EngineThread::~EngineThread() { stop(); }

void EngineThread::submit(std::unique_ptr<RequestRun> request) {
  {
    const std::lock_guard lock(mutex_);
    require_running(stopping_);
    const std::int64_t num_waiting = load_.waiting_requests + std::ssize(mail_.requests);
    require(num_waiting < max_waiting_, ErrorCode::kOverloaded,
            "{} requests are waiting already, the most that this engine takes; try again later",
            num_waiting);
    mail_.requests.push_back(std::move(request));
  }
  has_mail_.notify_one();
}

void EngineThread::call(std::function<void(LoadedModel&)> call) {
  Call task(std::move(call));
  std::future<void> done = task.get_future();
  {
    const std::lock_guard lock(mutex_);
    require_running(stopping_);
    mail_.calls.push_back(std::move(task));
  }
  has_mail_.notify_one();
  done.get();
}

void EngineThread::retire(std::unique_ptr<ModelSession> session) noexcept {
  {
    const std::lock_guard lock(mutex_);
    if (ended_) {
      session.reset();  // the lock keeps other sessions off the cache
      return;
    }
    mail_.retired.push_back(std::move(session));
  }
  has_mail_.notify_one();
}

EngineLoad EngineThread::load() const {
  const std::lock_guard lock(mutex_);
  EngineLoad load = load_;
  load.waiting_requests += std::ssize(mail_.requests);
  return load;
}

void EngineThread::stop() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  has_mail_.notify_one();
  if (thread_.joinable()) thread_.join();
}

bool EngineThread::take_mail(bool waits, Mail& mail) {
  std::unique_lock lock(mutex_);
  if (waits) {
    has_mail_.wait(lock, [this] { return stopping_ || !mail_.empty(); });
  }
  mail = std::exchange(mail_, {});
  // Until the scheduler publishes its own count: the queue's limit holds at any time.
  load_.waiting_requests += std::ssize(mail.requests);
  return !stopping_;
}

void EngineThread::publish(const Scheduler& scheduler) {
  const std::lock_guard lock(mutex_);
  load_ = scheduler.load();
}

void EngineThread::run() {
  {
    Scheduler scheduler(*model_);
    for (bool goes_on = true; goes_on;) {
      Mail mail;
      goes_on = take_mail(/*waits=*/!scheduler.has_work(), mail);
      mail.retired.clear();
      for (Call& call : mail.calls) call(*model_);
      try {
        for (auto& request : mail.requests) scheduler.add(std::move(request));
        if (!goes_on) scheduler.cancel_all();
        scheduler.admit();
        publish(scheduler);
        scheduler.step();
      } catch (...) {
        handle_current_exception([&](ErrorCode code, const std::string& message) {
          scheduler.fail_all(code, message);
          for (const auto& request : mail.requests) {
            if (request != nullptr) request->fail(code, message);  // the scheduler never got it
          }
        });
      }
      publish(scheduler);
    }
  }
  const std::lock_guard lock(mutex_);
  mail_.retired.clear();
  ended_ = true;
}

}  // namespace dsv4
