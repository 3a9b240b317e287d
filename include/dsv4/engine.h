// engine.h: a loaded model, and the requests and sessions that run on it.
//
// An Engine may be shared between threads. It computes in a thread of its own, in steps that all
// requests share; what a request gives does not depend on the others, to the bit.
//
//   auto engine = dsv4::Engine::open({.model_dir = "models/nano"});
//   auto handle = engine->submit({.prompt = "Once upon a time", .max_tokens = 20});
//   while (auto event = handle.next()) {
//     if (auto* token = std::get_if<dsv4::TokenEvent>(&*event)) std::cout << token->text;
//   }
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "dsv4/error.h"
#include "dsv4/request.h"
#include "dsv4/types.h"

namespace dsv4 {

struct EngineOptions {
  std::filesystem::path model_dir = {};
  std::string device = "cpu";          // a backend of this build: cpu, reference
  int num_threads = 0;                 // of a device that computes on the host, the engine's own
                                       // among them; 0: all cores of the affinity mask. Results do
                                       // not depend on it
  std::string activations = "auto";    // auto, a16, a8, a4: how activations enter linears
  std::string rows = "simulated";      // simulated: cache rows rounded as in training; exact
  std::string kv = {};                 // fp8, bf16, f32; empty: fp8, and f32 with exact rows
  std::int64_t kv_tokens = 0;          // of all sessions together; 0: a whole context for each,
                                       // at most 32768 tokens
  int max_sessions = 8;                // requests that run at once, and open Sessions
  std::int64_t max_step_tokens = 512;  // prompt chunks and drawn tokens of one step together
  int max_waiting_requests = 256;      // beyond those that run
  bool with_tokenizer = true;          // false: token ids only; tokenizer.json is not needed
  LoadProgressCallback load_progress = nullptr;  // null: nobody is told
};

struct EngineInfo {
  std::string device;
  std::string precision_note;  // what the model did not allow of `activations`; empty: nothing
  std::int64_t vocab_size = 0;
  std::int64_t max_session_tokens = 0;  // most tokens of one request, prompt and drawn, or session
  TokenId bos_token = -1;
  std::vector<TokenId> eos_tokens;
  float temperature = 1, top_p = 1;  // what the model's publisher suggests
};

// A snapshot after some recent step.
struct EngineLoad {
  std::int64_t waiting_requests = 0, running_requests = 0;
  std::int64_t free_sessions = 0;
  std::int64_t free_kv_pages = 0;  // of all compress ratios together
};

class Engine {
 public:
  // Loads and validates a checkpoint. Throws Error: kNotFound, kBadCheckpoint, kUnsupported,
  // kUnsupportedDevice, kBadRequest (an option, by name), kOutOfMemory, kIo.
  static std::unique_ptr<Engine> open(const EngineOptions& options);
  // Waits for the step in progress; requests that have not ended are cancelled.
  ~Engine();

  // Queues a request. Requests start in the order in which they came, each as soon as the cache has
  // room for its prompt and max_tokens; it keeps that room, so a request that has started always
  // ends. Does not wait for other requests.
  // Throws Error: kBadRequest (a field, by name; a request larger than max_session_tokens, with the
  // largest size that fits), kOverloaded (max_waiting_requests are waiting; try again later).
  RequestHandle submit(const Request& request);

  const EngineInfo& info() const;
  EngineLoad load() const;

  // Text functions, for any thread at any time. They throw Error kBadRequest on an engine that was
  // opened without its tokenizer.
  //
  // Marks inside the text become their tokens; nothing is added. At most 64 MiB.
  std::vector<TokenId> tokenize(std::string_view utf8) const;
  // Valid UTF-8. Throws Error kBadRequest for an id that is no token.
  std::string detokenize(std::span<const TokenId> tokens) const;
  // What the token stands for; may be part of a UTF-8 character. Throws as detokenize.
  std::string token_bytes(TokenId token) const;
  // The prompt of a conversation in DeepSeek-V4's format, begin mark included. `json` is an object
  // with messages as in OpenAI's API, and optionally tools, thinking, drop_thinking, add_bos,
  // effort, effort_table, context. Throws Error kBadRequest naming the field.
  std::string chat_prompt(std::string_view json) const;

 private:
  friend class Session;
  struct Impl;
  explicit Engine(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

// One token timeline on an engine, for embedding and tests: computes what is new, gives logits.
// After a move from it, it may only be assigned to or destroyed. Belongs to one thread at a time;
// several may run beside each other and beside requests, at most max_step_tokens of theirs between
// two steps. Holds a session of the engine and cache memory as it grows. May outlive its engine,
// whose memory it then keeps; calls other than the destructor and length() throw Error kBadRequest
// then.
class Session {
 public:
  // Throws Error kOverloaded when max_sessions are in use.
  explicit Session(Engine& engine);
  Session(Session&&) noexcept;
  Session& operator=(Session&&) noexcept;
  ~Session();

  // Makes the session hold exactly `tokens`. When they extend the present ones only the rest is
  // computed. Otherwise the session starts over, also where a prefix is common: its state is that
  // of the present token and cannot be taken back. Returns the number of tokens computed.
  // Throws Error kBadRequest for an id outside the vocabulary or too many tokens; then nothing has
  // changed. After any other Error (kOverloaded: the cache is full) the session is empty.
  std::int64_t sync(std::span<const TokenId> tokens);
  // Appends one token. Throws as sync does.
  void step(TokenId token);
  std::int64_t length() const;
  // Logits after the last token, [vocab_size]; valid until the session changes. Throws Error
  // kBadRequest for an empty session.
  std::span<const float> logits() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace dsv4
