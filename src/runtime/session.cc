// session.cc: the public session: a runtime ModelSession that lives on the engine's thread, fed
// one step at a time so that requests go on beside it.
#include <algorithm>
#include <utility>

#include "base/error.h"
#include "dsv4/engine.h"
#include "runtime/engine_impl.h"
#include "runtime/prepared_request.h"

namespace dsv4 {

struct Session::Impl {
  explicit Impl(Engine::Impl& engine) : thread(engine.thread), info(engine.info) {
    thread->call([this](LoadedModel& model) {
      session = std::make_unique<ModelSession>(model);
      max_step_tokens = model.model().options().max_step_tokens;
    });
  }
  ~Impl() {
    if (session != nullptr) thread->retire(std::move(session));
  }

  void check(std::span<const TokenId> tokens, std::int64_t num_before) const {
    check_token_ids(tokens, info.vocab_size, "tokens");
    const std::int64_t count = num_before + std::ssize(tokens);
    require(count <= info.max_session_tokens, ErrorCode::kBadRequest,
            "a session of {} tokens; this engine takes at most {}; give fewer, or open it with a "
            "larger kv_tokens if the model allows it",
            count, info.max_session_tokens);
  }

  std::shared_ptr<EngineThread> thread;
  EngineInfo info;
  std::int64_t max_step_tokens = 0;
  std::unique_ptr<ModelSession> session;  // used on the engine's thread only
  std::int64_t length = 0;
  std::vector<float> logits;  // empty: not fetched since the session changed
};

Session::Session(Engine& engine) : impl_(std::make_unique<Impl>(*engine.impl_)) {}
Session::Session(Session&&) noexcept = default;
Session& Session::operator=(Session&&) noexcept = default;
Session::~Session() = default;

std::int64_t Session::sync(std::span<const TokenId> tokens) {
  impl_->check(tokens, 0);
  const std::int64_t total = std::ssize(tokens);
  std::int64_t computed = 0;
  for (std::int64_t held = -1; held < total;) {
    impl_->thread->call([&](LoadedModel&) {
      ModelSession& session = *impl_->session;
      const auto present = session.tokens();
      const bool extends = std::ssize(present) <= total &&
                           std::equal(present.begin(), present.end(), tokens.begin());
      const std::int64_t end =
          std::min(total, (extends ? session.length() : 0) + impl_->max_step_tokens);
      impl_->logits.clear();
      impl_->length = 0;  // unless sync returns
      computed += session.sync(tokens.first(static_cast<std::size_t>(end)));
      held = impl_->length = session.length();
    });
  }
  return computed;
}

void Session::step(TokenId token) {
  impl_->check({&token, 1}, impl_->length);
  impl_->thread->call([&](LoadedModel&) {
    impl_->logits.clear();
    impl_->length = 0;
    impl_->session->step(token);
    impl_->length = impl_->session->length();
  });
}

std::int64_t Session::length() const { return impl_->length; }

std::span<const float> Session::logits() const {
  if (impl_->logits.empty()) {
    impl_->thread->call([&](LoadedModel&) {
      const auto logits = impl_->session->logits();
      impl_->logits.assign(logits.begin(), logits.end());
    });
  }
  return impl_->logits;
}

}  // namespace dsv4
