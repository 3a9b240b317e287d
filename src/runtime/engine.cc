// engine.cc: the public engine: checks and text on the caller's thread, all else handed to the
// engine's own.
#include "dsv4/engine.h"

#include <utility>

#include "base/error.h"
#include "runtime/engine_impl.h"
#include "runtime/engine_options.h"
#include "runtime/prepared_request.h"
#include "text/chat_encode.h"
#include "text/chat_marks.h"
#include "text/utf8.h"

namespace dsv4 {
namespace {

// Room for the longest path and what is wrong with it.
constexpr std::size_t kMaxMessageBytes = 8192;

// Paths and names stand in messages as the caller and the files give them: what is no text of a
// message is replaced here. Other errors, also those of the caller's load_progress, pass untouched.
std::unique_ptr<LoadedModel> load_model(const EngineOptions& options) {
  try {
    return std::make_unique<LoadedModel>(model_open_options(options));
  } catch (const Error& error) {
    const std::string message = printable_utf8(error.what(), kMaxMessageBytes);
    if (message == error.what()) throw;
    throw Error(error.code(), message);
  }
}

}  // namespace

std::string_view to_string(FinishReason reason) {
  switch (reason) {
    case FinishReason::kStop:
      return "stop";
    case FinishReason::kLength:
      return "length";
    case FinishReason::kCancelled:
      return "cancelled";
  }
  return "?";
}

RequestHandle::RequestHandle(std::shared_ptr<EventQueue> events) : events_(std::move(events)) {}
RequestHandle::RequestHandle(RequestHandle&&) noexcept = default;

RequestHandle& RequestHandle::operator=(RequestHandle&& other) noexcept {
  if (this == &other) return *this;
  cancel();
  events_ = std::move(other.events_);
  return *this;
}

RequestHandle::~RequestHandle() { cancel(); }

std::optional<Event> RequestHandle::next() {
  return events_ == nullptr ? std::nullopt : events_->next();
}

bool RequestHandle::wait_for(std::chrono::milliseconds timeout) const {
  return events_ == nullptr || events_->wait_for(timeout);
}

PromptProgress RequestHandle::prompt_progress() const {
  return events_ == nullptr ? PromptProgress{} : events_->prompt_progress();
}

void RequestHandle::cancel() {
  if (events_ != nullptr) events_->cancel();
}

std::unique_ptr<Engine> Engine::open(const EngineOptions& options) {
  std::unique_ptr<LoadedModel> model = load_model(options);
  auto impl = std::make_unique<Impl>();
  impl->effort_table = effort_table_of(model->config());
  impl->info = describe(*model);
  impl->tokenizer = model->has_tokenizer() ? &model->tokenizer() : nullptr;
  impl->thread = std::make_shared<EngineThread>(std::move(model), options.max_waiting_requests);
  return std::unique_ptr<Engine>(new Engine(std::move(impl)));
}

Engine::Engine(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Engine::~Engine() { impl_->thread->stop(); }

const EngineInfo& Engine::info() const { return impl_->info; }
EngineLoad Engine::load() const { return impl_->thread->load(); }

RequestHandle Engine::submit(const Request& request) {
  auto events = std::make_shared<EventQueue>();
  auto run = std::make_unique<RequestRun>(prepare(request, impl_->info, impl_->tokenizer), events,
                                          impl_->tokenizer);
  impl_->thread->submit(std::move(run));
  return RequestHandle(std::move(events));
}

const Tokenizer& Engine::Impl::require_tokenizer() const {
  require(tokenizer != nullptr, ErrorCode::kBadRequest,
          "this engine was opened without its tokenizer; open it with one");
  return *tokenizer;
}

std::vector<TokenId> Engine::tokenize(std::string_view utf8) const {
  return impl_->require_tokenizer().encode(utf8);
}

std::string Engine::detokenize(std::span<const TokenId> tokens) const {
  return impl_->require_tokenizer().decode(tokens);
}

std::string Engine::token_bytes(TokenId token) const {
  return std::string(impl_->require_tokenizer().token_bytes(token));
}

std::string Engine::chat_prompt(std::string_view json) const {
  find_chat_marks(impl_->require_tokenizer());  // marks that it lacks would be spelled out
  return encode_conversation(parse_conversation(json, impl_->effort_table));
}

}  // namespace dsv4
