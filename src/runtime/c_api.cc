// c_api.cc: the C API on the public C++ one: handles, statuses for exceptions, copies for pointers.
#include <algorithm>
#include <cstring>
#include <new>
#include <utility>

#include "base/error.h"
#include "dsv4/dsv4.h"
#include "dsv4/engine.h"
#include "runtime/c_status.h"

struct dsv4_engine {
  std::unique_ptr<dsv4::Engine> engine;
};

struct dsv4_request {
  dsv4::RequestHandle handle;
  std::optional<dsv4::Event> event;  // what the last dsv4_event points into
  std::vector<dsv4_token_logprob> top_logprobs;
};

struct dsv4_session {
  dsv4::Session session;
};

namespace {

using dsv4::ErrorCode;
using dsv4::status_of;

dsv4_status report(dsv4_status status, std::string_view message, dsv4_error* error) noexcept {
  if (error == nullptr) return status;
  error->status = status;
  std::size_t size = std::min(message.size(), sizeof(error->message) - 1);
  // Not inside a character: bytes 10xxxxxx continue one.
  while (size < message.size() && size > 0 && (message[size] & 0xC0) == 0x80) --size;
  std::memcpy(error->message, message.data(), size);
  error->message[size] = '\0';
  return status;
}

// Thrown by the load progress of a caller who wants no more.
struct LoadingCancelled {};

// Runs `call` and turns what it throws into a status.
template <class Call>
dsv4_status guarded(dsv4_error* error, Call&& call) noexcept {
  try {
    call();
    return DSV4_OK;
  } catch (const dsv4::Error& e) {
    return report(status_of(e.code()), e.what(), error);
  } catch (const LoadingCancelled&) {
    return report(DSV4_CANCELLED, "load_progress ended the loading", error);
  } catch (const std::bad_alloc&) {
    return report(DSV4_OUT_OF_MEMORY, "out of host memory", error);
  } catch (const std::exception& e) {
    return report(DSV4_INTERNAL, e.what(), error);
  } catch (...) {
    return report(DSV4_INTERNAL, "an exception of unknown type", error);
  }
}

void require_pointer(const void* pointer, std::string_view name) {
  dsv4::require(pointer != nullptr, ErrorCode::kBadRequest, "{} is null", name);
}

dsv4::LoadProgressCallback load_progress_of(const dsv4_engine_options& o) {
  if (o.load_progress == nullptr) return nullptr;
  return [callback = o.load_progress,
          user_data = o.load_progress_data](const dsv4::LoadProgress& from) {
    const bool is_files = from.stage == dsv4::LoadProgress::Stage::kFiles;
    const dsv4_load_progress progress = {is_files ? DSV4_LOAD_FILES : DSV4_LOAD_TENSORS, from.done,
                                         from.total};
    if (callback(&progress, user_data) != 0) throw LoadingCancelled{};
  };
}

// [count] values; null only if there are none.
template <class T>
std::span<const T> array(const T* data, std::size_t count, std::string_view name) {
  if (count > 0) require_pointer(data, name);
  return {data, count};
}

std::string_view text(const char* data, std::size_t num_bytes, std::string_view name) {
  if (num_bytes > 0) require_pointer(data, name);
  return {data, num_bytes};
}

std::string_view text_or(const char* data, std::string_view fallback) {
  return data == nullptr ? fallback : std::string_view(data);
}

template <class Values, class T>
void copy_out(const Values& values, T* to, std::size_t capacity, std::size_t* count) {
  require_pointer(count, "the pointer for the size");
  *count = values.size();
  dsv4::require(values.size() <= capacity, ErrorCode::kBadRequest,
                "the result has {} elements, the buffer room for {}; give a larger one",
                values.size(), capacity);
  if (!values.empty()) {
    require_pointer(to, "the buffer");
    std::copy(values.begin(), values.end(), to);
  }
}

dsv4::Request request_of(const dsv4_request_options& o) {
  dsv4::Request request;
  if (o.prompt_tokens != nullptr) {
    const auto ids = array(o.prompt_tokens, o.num_prompt_tokens, "prompt_tokens");
    request.prompt = std::vector<dsv4::TokenId>(ids.begin(), ids.end());
  } else {
    dsv4::require(o.prompt_text != nullptr, ErrorCode::kBadRequest,
                  "no prompt: set prompt_tokens or prompt_text");
    request.prompt = std::string(text(o.prompt_text, o.prompt_text_bytes, "prompt_text"));
  }
  request.add_bos = o.add_bos != 0;
  request.max_tokens = o.max_tokens;
  request.sampling = {.min_p = o.min_p,
                      .top_k = o.top_k,
                      .repetition_penalty = o.repetition_penalty,
                      .presence_penalty = o.presence_penalty,
                      .frequency_penalty = o.frequency_penalty,
                      .seed = o.seed};
  // NaN is not negative: it is passed on, and refused.
  if (!(o.temperature < 0)) request.sampling.temperature = o.temperature;
  if (!(o.top_p < 0)) request.sampling.top_p = o.top_p;
  for (const auto& [token, bias] : array(o.logit_bias, o.num_logit_bias, "logit_bias")) {
    request.sampling.logit_bias[token] = bias;
  }
  for (const char* stop : array(o.stop_strings, o.num_stop_strings, "stop_strings")) {
    require_pointer(stop, "one of stop_strings");
    request.stop_strings.emplace_back(stop);
  }
  const auto stop_tokens = array(o.stop_tokens, o.num_stop_tokens, "stop_tokens");
  request.stop_tokens.assign(stop_tokens.begin(), stop_tokens.end());
  request.ignore_eos = o.ignore_eos != 0;
  if (o.logprobs != -1) request.logprobs = o.logprobs;
  return request;
}

// Views of `request.event`.
struct EventWriter {
  dsv4_request& request;
  dsv4_event& out;

  void set_text(const std::string& value) const {
    out.text = value.c_str();
    out.text_bytes = value.size();
  }
  void operator()(const dsv4::TokenEvent& event) const {
    out.kind = DSV4_EVENT_TOKEN;
    set_text(event.text);
    out.token = event.token;
    out.logprob = event.logprob.value_or(0);
    request.top_logprobs.clear();
    for (const dsv4::TokenLogprob& top : event.top_logprobs) {
      request.top_logprobs.push_back({top.token, top.logprob});
    }
    out.top_logprobs = request.top_logprobs.data();
    out.num_top_logprobs = request.top_logprobs.size();
  }
  void operator()(const dsv4::FinishEvent& event) const {
    out.kind = DSV4_EVENT_FINISH;
    set_text(event.text);
    out.finish_reason = event.reason == dsv4::FinishReason::kStop     ? DSV4_FINISH_STOP
                        : event.reason == dsv4::FinishReason::kLength ? DSV4_FINISH_LENGTH
                                                                      : DSV4_FINISH_CANCELLED;
    out.stop_string = event.stop_string.empty() ? nullptr : event.stop_string.c_str();
    out.prompt_tokens = event.usage.prompt_tokens;
    out.completion_tokens = event.usage.completion_tokens;
  }
  void operator()(const dsv4::ErrorEvent& event) const {
    out.kind = DSV4_EVENT_ERROR;
    set_text(event.message);
    out.status = status_of(event.code);
  }
};

}  // namespace

const char* dsv4_version(void) { return DSV4_VERSION; }

void dsv4_engine_options_init(dsv4_engine_options* options) {
  const dsv4::EngineOptions defaults;
  *options = {};
  options->num_threads = defaults.num_threads;
  options->kv_tokens = defaults.kv_tokens;
  options->max_sessions = defaults.max_sessions;
  options->max_step_tokens = defaults.max_step_tokens;
  options->max_waiting_requests = defaults.max_waiting_requests;
}

dsv4_status dsv4_engine_open(const dsv4_engine_options* options, dsv4_engine** engine,
                             dsv4_error* error) {
  return guarded(error, [&] {
    require_pointer(options, "options");
    require_pointer(engine, "engine");
    dsv4::EngineOptions open;
    open.model_dir = text_or(options->model_dir, "");
    open.device = text_or(options->device, open.device);
    open.num_threads = options->num_threads;
    open.activations = text_or(options->activations, open.activations);
    open.rows = text_or(options->rows, open.rows);
    open.kv = text_or(options->kv, open.kv);
    open.kv_tokens = options->kv_tokens;
    open.max_sessions = options->max_sessions;
    open.max_step_tokens = options->max_step_tokens;
    open.max_waiting_requests = options->max_waiting_requests;
    open.with_tokenizer = options->without_tokenizer == 0;
    open.load_progress = load_progress_of(*options);
    *engine = new dsv4_engine{dsv4::Engine::open(open)};
  });
}

void dsv4_engine_close(dsv4_engine* engine) { delete engine; }

void dsv4_engine_get_info(const dsv4_engine* engine, dsv4_engine_info* info) {
  const dsv4::EngineInfo& from = engine->engine->info();
  *info = {from.vocab_size,
           from.max_session_tokens,
           from.bos_token,
           from.eos_tokens.data(),
           from.eos_tokens.size(),
           from.device.c_str(),
           from.precision_note.c_str(),
           from.temperature,
           from.top_p};
}

void dsv4_engine_get_load(const dsv4_engine* engine, dsv4_engine_load* load) {
  const dsv4::EngineLoad from = engine->engine->load();
  *load = {from.waiting_requests, from.running_requests, from.free_sessions, from.free_kv_pages};
}

dsv4_status dsv4_tokenize(const dsv4_engine* engine, const char* utf8, size_t text_bytes,
                          int32_t* tokens, size_t capacity, size_t* count, dsv4_error* error) {
  return guarded(error, [&] {
    require_pointer(engine, "engine");
    copy_out(engine->engine->tokenize(text(utf8, text_bytes, "text")), tokens, capacity, count);
  });
}

dsv4_status dsv4_detokenize(const dsv4_engine* engine, const int32_t* tokens, size_t num_tokens,
                            char* out, size_t capacity, size_t* num_bytes, dsv4_error* error) {
  return guarded(error, [&] {
    require_pointer(engine, "engine");
    copy_out(engine->engine->detokenize(array(tokens, num_tokens, "tokens")), out, capacity,
             num_bytes);
  });
}

dsv4_status dsv4_token_bytes(const dsv4_engine* engine, int32_t token, char* bytes, size_t capacity,
                             size_t* num_bytes, dsv4_error* error) {
  return guarded(error, [&] {
    require_pointer(engine, "engine");
    copy_out(engine->engine->token_bytes(token), bytes, capacity, num_bytes);
  });
}

dsv4_status dsv4_chat_prompt(const dsv4_engine* engine, const char* json, size_t json_bytes,
                             char* out, size_t capacity, size_t* num_bytes, dsv4_error* error) {
  return guarded(error, [&] {
    require_pointer(engine, "engine");
    copy_out(engine->engine->chat_prompt(text(json, json_bytes, "json")), out, capacity, num_bytes);
  });
}

void dsv4_request_options_init(dsv4_request_options* options) {
  const dsv4::Request defaults;
  *options = {};
  options->add_bos = defaults.add_bos ? 1 : 0;
  options->max_tokens = defaults.max_tokens;
  options->temperature = -1;
  options->top_p = -1;
  options->repetition_penalty = defaults.sampling.repetition_penalty;
  options->logprobs = -1;
}

dsv4_status dsv4_request_submit(dsv4_engine* engine, const dsv4_request_options* options,
                                dsv4_request** request, dsv4_error* error) {
  return guarded(error, [&] {
    require_pointer(engine, "engine");
    require_pointer(options, "options");
    require_pointer(request, "request");
    *request = new dsv4_request{engine->engine->submit(request_of(*options)), {}, {}};
  });
}

dsv4_status dsv4_request_next(dsv4_request* request, dsv4_event* event, dsv4_error* error) {
  return guarded(error, [&] {
    require_pointer(request, "request");
    require_pointer(event, "event");
    request->event = request->handle.next();
    *event = {};
    event->kind = DSV4_EVENT_NONE;
    if (request->event) std::visit(EventWriter{*request, *event}, *request->event);
  });
}

int dsv4_request_wait(dsv4_request* request, int64_t timeout_ms) {
  return request->handle.wait_for(std::chrono::milliseconds(timeout_ms)) ? 1 : 0;
}

void dsv4_request_prompt_progress(const dsv4_request* request, int64_t* computed_tokens,
                                  int64_t* total_tokens) {
  const dsv4::PromptProgress progress = request->handle.prompt_progress();
  if (computed_tokens != nullptr) *computed_tokens = progress.computed_tokens;
  if (total_tokens != nullptr) *total_tokens = progress.total_tokens;
}

void dsv4_request_cancel(dsv4_request* request) { request->handle.cancel(); }
void dsv4_request_free(dsv4_request* request) { delete request; }

dsv4_status dsv4_session_open(dsv4_engine* engine, dsv4_session** session, dsv4_error* error) {
  return guarded(error, [&] {
    require_pointer(engine, "engine");
    require_pointer(session, "session");
    *session = new dsv4_session{dsv4::Session(*engine->engine)};
  });
}

dsv4_status dsv4_session_sync(dsv4_session* session, const int32_t* tokens, size_t num_tokens,
                              int64_t* computed, dsv4_error* error) {
  return guarded(error, [&] {
    require_pointer(session, "session");
    const int64_t count = session->session.sync(array(tokens, num_tokens, "tokens"));
    if (computed != nullptr) *computed = count;
  });
}

dsv4_status dsv4_session_step(dsv4_session* session, int32_t token, dsv4_error* error) {
  return guarded(error, [&] {
    require_pointer(session, "session");
    session->session.step(token);
  });
}

int64_t dsv4_session_length(const dsv4_session* session) { return session->session.length(); }

dsv4_status dsv4_session_logits(const dsv4_session* session, const float** logits,
                                dsv4_error* error) {
  return guarded(error, [&] {
    require_pointer(session, "session");
    require_pointer(logits, "logits");
    *logits = session->session.logits().data();
  });
}

void dsv4_session_free(dsv4_session* session) { delete session; }
