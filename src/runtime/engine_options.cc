#include "runtime/engine_options.h"

#include <array>
#include <utility>

#include "base/error.h"
#include "text/strict_json.h"

namespace dsv4 {
namespace {

template <class Value>
struct Named {
  std::string_view name;
  Value value;
};

constexpr std::array<Named<Activations>, 4> kActivations{{{"auto", Activations::kAuto},
                                                          {"a16", Activations::kA16},
                                                          {"a8", Activations::kA8},
                                                          {"a4", Activations::kA4}}};
constexpr std::array<Named<bool>, 2> kSimulateRows{{{"simulated", true}, {"exact", false}}};
constexpr std::array<Named<KvFormat>, 3> kKvFormats{
    {{"fp8", KvFormat::kFp8}, {"bf16", KvFormat::kBf16}, {"f32", KvFormat::kF32}}};

template <class Value, std::size_t kCount>
Value find_named(const std::array<Named<Value>, kCount>& table, std::string_view field,
                 std::string_view name) {
  std::string names;
  for (const Named<Value>& entry : table) {
    if (entry.name == name) return entry.value;
    names.append(names.empty() ? "" : ", ").append(entry.name);
  }
  fail(ErrorCode::kBadRequest, "{} is {}; it must be one of {}", field, quote(name), names);
}

KvFormat kv_format(const EngineOptions& options, bool simulate_rows) {
  if (options.kv.empty()) return simulate_rows ? KvFormat::kFp8 : KvFormat::kF32;
  const KvFormat format = find_named(kKvFormats, "kv", options.kv);
  require(simulate_rows || format != KvFormat::kFp8, ErrorCode::kBadRequest,
          "kv is \"fp8\", which would round exact rows; choose bf16 or f32, or rows \"simulated\"");
  return format;
}

}  // namespace

ModelOpenOptions model_open_options(const EngineOptions& options) {
  require(!options.model_dir.empty(), ErrorCode::kBadRequest,
          "model_dir is empty; give the directory of a model");
  require(options.max_waiting_requests >= 1, ErrorCode::kBadRequest,
          "max_waiting_requests is {}; it must be at least 1", options.max_waiting_requests);
  ModelOpenOptions open;
  open.model_dir = options.model_dir;
  open.device = options.device;
  open.num_threads = options.num_threads;
  open.model.activations = find_named(kActivations, "activations", options.activations);
  open.model.simulate_rows = find_named(kSimulateRows, "rows", options.rows);
  open.model.kv = kv_format(options, open.model.simulate_rows);
  open.model.max_step_tokens = options.max_step_tokens;
  open.kv_tokens = options.kv_tokens;
  open.max_sessions = options.max_sessions;
  open.with_tokenizer = options.with_tokenizer;
  open.load_progress = options.load_progress;
  return open;
}

EngineInfo describe(LoadedModel& model) {
  const GenerationDefaults& defaults = model.generation();
  return {.device = std::string(model.backend().name()),
          .precision_note = model.model().precision_note(),
          .vocab_size = model.config().vocab_size,
          .max_session_tokens = model.max_session_tokens(),
          .bos_token = model.config().bos_id,
          .eos_tokens = defaults.eos_ids,
          .temperature = static_cast<float>(defaults.temperature),
          .top_p = static_cast<float>(defaults.top_p)};
}

}  // namespace dsv4
