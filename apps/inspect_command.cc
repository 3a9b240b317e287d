// inspect_command.cc: dsv4 inspect: what a checkpoint holds and how it would be used, from its
// headers and the block scales of its 4-bit weights; the large weights are not read.
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>

#include "checkpoint/bind.h"
#include "checkpoint/foldable.h"
#include "commands.h"
#include "common_options.h"
#include "console.h"
#include "model/cache_schema.h"

namespace dsv4 {
namespace {

// Unused tensors printed for each reason; --json has them all.
constexpr std::int64_t kShownUnused = 8;

struct InspectArguments {
  ModelArguments model;
  bool json = false, no_scales = false;
};

struct CacheSizes {
  double bytes_per_token = 0;
  std::int64_t session_bytes = 0;
};

CacheSizes cache_sizes(const ModelConfig& config) {
  const CacheSchema schema = make_cache_schema(config, ModelOptions{}, /*with_draft=*/false);
  return {schema.bytes_per_token(), schema.fixed_bytes()};
}

std::string_view to_string(Scoring scoring) {
  switch (scoring) {
    case Scoring::kSqrtSoftplus:
      return "sqrt(softplus)";
    case Scoring::kSigmoid:
      return "sigmoid";
    case Scoring::kSoftmax:
      return "softmax";
  }
  return "?";
}

std::string attention_kind(int compress_ratio) {
  if (compress_ratio == 0) return "window";
  return fmt::format("{} {}", is_overlapping(compress_ratio) ? "CSA" : "HCA", compress_ratio);
}

std::string config_text(const ModelConfig& c) {
  std::string out;
  const auto line = [&out](std::string_view what, const std::string& value) {
    out += fmt::format("{:<18}{}\n", what, value);
  };
  line("layers",
       fmt::format("{}, hidden {}, {} residual copies", c.num_layers, c.hidden_size, c.hc_copies));
  line("vocabulary",
       fmt::format("{}, begin {}, end {}", c.vocab_size, c.bos_id, fmt::join(c.eos_ids, " ")));
  line("positions", fmt::format("{}", c.max_positions));
  line("attention", fmt::format("{} heads of {} ({} rotated), window {}, query rank {}",
                                c.num_heads, c.head_dim, c.rope_dim, c.window, c.q_low_rank));
  line("output", fmt::format("{} groups of rank {}", c.num_output_groups, c.o_low_rank));
  line("indexer",
       fmt::format("{} heads of {}, {} rows", c.index_heads, c.index_head_dim, c.index_top_k));
  line("experts", fmt::format("{} of width {}, {} a token, {} shared, {} scores, {} hash layers",
                              c.num_experts, c.expert_inter, c.experts_per_token,
                              c.num_shared_experts, to_string(c.scoring), c.num_hash_layers));
  line("draft blocks", fmt::format("{}{}", c.num_draft_blocks, c.has_dspark ? " (DSpark)" : ""));
  const CacheSizes cache = cache_sizes(c);
  line("cache", fmt::format("{:.0f} B a token, {} a session", cache.bytes_per_token,
                            format_bytes(cache.session_bytes)));
  return out;
}

std::string layer_text(const BindReport& report) {
  std::string out = fmt::format("{:<12}{:<12}{:<10}{:<20}{}\n", "layer", "attention", "router",
                                "dense matrices", "experts");
  for (const LayerSummary& layer : report.layers) {
    out +=
        fmt::format("{:<12}{:<12}{:<10}{:<20}{} {}\n", printable(layer.name),
                    attention_kind(layer.compress_ratio), layer.routed_by_hash ? "hash" : "score",
                    layer.linear_formats, layer.num_experts, layer.expert_formats);
  }
  return out;
}

std::string format_text(const BindReport& report) {
  std::string out = fmt::format("{:<12}{:>10}{:>12}\n", "format", "tensors", "bytes");
  std::int64_t tensors = 0, bytes = 0;
  for (const FormatTotal& total : report.totals) {
    out +=
        fmt::format("{:<12}{:>10}{:>12}\n", total.label, total.tensors, format_bytes(total.bytes));
    tensors += total.tensors;
    bytes += total.bytes;
  }
  return out + fmt::format("{:<12}{:>10}{:>12}\n", "used", tensors, format_bytes(bytes));
}

std::string unused_text(const BindReport& report) {
  if (report.unused.empty()) return "every tensor is used\n";
  std::map<std::string_view, std::vector<const UnusedTensor*>> by_reason;
  for (const UnusedTensor& tensor : report.unused) by_reason[tensor.reason].push_back(&tensor);
  std::string out;
  for (const auto& [reason, tensors] : by_reason) {
    std::int64_t bytes = 0;
    for (const UnusedTensor* tensor : tensors) bytes += tensor->bytes;
    out += fmt::format("unused: {} tensors, {}: {}\n", tensors.size(), format_bytes(bytes), reason);
    const auto shown = std::min(kShownUnused, static_cast<std::int64_t>(tensors.size()));
    for (std::int64_t i = 0; i < shown; ++i) {
      const UnusedTensor& tensor = *tensors[static_cast<std::size_t>(i)];
      out += fmt::format("  {} ({})\n", printable(tensor.name), format_bytes(tensor.bytes));
    }
    const std::int64_t rest = static_cast<std::int64_t>(tensors.size()) - shown;
    if (rest > 0) out += fmt::format("  and {} more; --json lists them\n", rest);
  }
  return out;
}

std::string group_name(MatrixKind kind, bool is_draft) {
  const bool names_it = kind == MatrixKind::kDraftInput;
  return fmt::format("{}{}", is_draft && !names_it ? "draft " : "", to_string(kind));
}

std::string_view fold_verdict(bool is_exact) { return is_exact ? "exact in FP8" : "needs BF16"; }

std::string span_text(std::optional<int> span) { return span ? fmt::format("{}", *span) : "-"; }

std::string fold_text(const FoldReport& report) {
  std::string out = fmt::format("{:<22}{:<8}{:>8}{:>8}{:>6}{:>6}\n", "matrices", "format", "number",
                                "in FP8", "span", "whole");
  for (const FoldGroup& group : report.groups) {
    out += fmt::format("{:<22}{:<8}{:>8}{:>8}{:>6}{:>6}  {}\n",
                       group_name(group.kind, group.is_draft), to_string(group.format),
                       group.matrices, group.exact_in_fp8, span_text(group.widest_span),
                       span_text(group.whole_span), fold_verdict(group.is_exact_in_fp8()));
  }
  return out + report.answer() + "\n";
}

nlohmann::ordered_json fold_json(const FoldReport& report) {
  using Json = nlohmann::ordered_json;
  Json groups = Json::array(), matrices = Json::array();
  for (const FoldGroup& group : report.groups) {
    Json& json = groups.emplace_back();
    json = {{"matrices", group_name(group.kind, group.is_draft)},
            {"format", to_string(group.format)},
            {"number", group.matrices},
            {"number_exact_in_fp8", group.exact_in_fp8},
            {"exact_in_fp8", group.is_exact_in_fp8()}};
    if (group.widest_span) json["widest_span"] = *group.widest_span;
    if (group.whole_span) json["whole_span"] = *group.whole_span;
  }
  for (const MatrixFold& fold : report.matrices) {
    if (!fold.exponents) continue;
    Json& json = matrices.emplace_back();
    json = {{"name", fold.matrix.name}, {"exact_in_fp8", fold.is_exact_in_fp8}};
    if (fold.exponents->are_powers_of_two) json["span"] = fold.exponents->span();
  }
  return {{"answer", report.answer()},
          {"groups", std::move(groups)},
          {"matrices", std::move(matrices)}};
}

nlohmann::ordered_json config_json(const ModelConfig& c) {
  return {{"num_layers", c.num_layers},
          {"hidden_size", c.hidden_size},
          {"hc_copies", c.hc_copies},
          {"vocab_size", c.vocab_size},
          {"bos_id", c.bos_id},
          {"eos_ids", c.eos_ids},
          {"max_positions", c.max_positions},
          {"num_heads", c.num_heads},
          {"head_dim", c.head_dim},
          {"rope_dim", c.rope_dim},
          {"window", c.window},
          {"q_low_rank", c.q_low_rank},
          {"num_output_groups", c.num_output_groups},
          {"o_low_rank", c.o_low_rank},
          {"index_heads", c.index_heads},
          {"index_head_dim", c.index_head_dim},
          {"index_top_k", c.index_top_k},
          {"num_experts", c.num_experts},
          {"expert_inter", c.expert_inter},
          {"experts_per_token", c.experts_per_token},
          {"num_shared_experts", c.num_shared_experts},
          {"num_hash_layers", c.num_hash_layers},
          {"scoring", to_string(c.scoring)},
          {"num_draft_blocks", c.num_draft_blocks},
          {"has_dspark", c.has_dspark}};
}

nlohmann::ordered_json report_json(const ModelWeights& weights,
                                   const std::optional<FoldReport>& folds) {
  using Json = nlohmann::ordered_json;
  const BindReport& report = weights.report;
  Json layers = Json::array(), formats = Json::array(), unused = Json::array();
  for (const LayerSummary& layer : report.layers) {
    layers.push_back({{"name", layer.name},
                      {"compress_ratio", layer.compress_ratio},
                      {"router", layer.routed_by_hash ? "hash" : "score"},
                      {"linears", layer.linear_formats},
                      {"num_experts", layer.num_experts},
                      {"experts", layer.expert_formats}});
  }
  for (const FormatTotal& total : report.totals) {
    formats.push_back(
        {{"format", total.label}, {"tensors", total.tensors}, {"bytes", total.bytes}});
  }
  for (const UnusedTensor& tensor : report.unused) {
    unused.push_back({{"name", tensor.name}, {"bytes", tensor.bytes}, {"reason", tensor.reason}});
  }
  const CacheSizes cache = cache_sizes(weights.config);
  Json json;
  json["config"] = config_json(weights.config);
  json["layers"] = std::move(layers);
  json["formats"] = std::move(formats);
  json["payload_bytes"] = weights.store->payload_bytes();
  json["copied_bytes"] = report.copied_bytes;
  json["unused"] = std::move(unused);
  json["notes"] = report.notes;
  json["cache"] = {{"bytes_per_token", cache.bytes_per_token},
                   {"session_bytes", cache.session_bytes}};
  if (folds) json["fp8"] = fold_json(*folds);
  return json;
}

// With a bar if that takes more than half a second: of Flash these are 9 GB.
FoldReport scan_with_bar(const ModelWeights& weights) {
  ProgressBar bar("reading block scales", "bytes", std::chrono::steady_clock::now() + kQuietTime);
  return scan_folds(weights, [&bar](std::int64_t done, std::int64_t total) {
    InterruptGuard::check();
    bar.update(done, total);
  });
}

void run_inspect(const InspectArguments& args) {
  const InterruptGuard guard;
  const std::shared_ptr<const ModelWeights> weights =
      load_checkpoint(args.model.model_dir, {.with_draft = true, .progress = load_progress_bar()});
  std::optional<FoldReport> folds;
  if (!args.no_scales) folds = scan_with_bar(*weights);
  if (args.json) {
    write_stdout(report_json(*weights, folds).dump() + "\n");
    return;
  }
  std::string out = config_text(weights->config);
  out += "\n" + layer_text(weights->report);
  out += "\n" + format_text(weights->report);
  if (folds) out += "\n" + fold_text(*folds);
  out += "\n" + unused_text(weights->report);
  for (const std::string& note : weights->report.notes) out += "note: " + printable(note) + "\n";
  write_stdout(out);
}

}  // namespace

void add_inspect_command(CLI::App& app) {
  CLI::App* command =
      app.add_subcommand("inspect", "show what a checkpoint holds and how it would be used");
  const auto args = std::make_shared<InspectArguments>();
  args->model.add_model_dir(*command);
  command->add_flag("--json", args->json, "one JSON object, with every unused tensor");
  command->add_flag("--no-scales", args->no_scales,
                    "leave out what is exact in FP8, for which all block scales are read: 9 GB of "
                    "V4-Flash");
  command->footer(
      "Checks names, formats and shapes of all tensors against the config, as loading does. Of "
      "the\n"
      "large weights only the block scales of 4-bit matrices are read, to tell which are exact in\n"
      "FP8: all scales of a matrix are powers of two whose exponents span at most 14 steps. With\n"
      "--no-scales only headers and small tensors are. No tokenizer is needed. Cache sizes are "
      "those\n"
      "of the default options.\n"
      "Examples:\n"
      "  dsv4 inspect models/nano\n"
      "  dsv4 inspect DeepSeek-V4-Flash --no-scales\n"
      "  dsv4 inspect models/nano --json | jq .formats");
  command->callback([args] { run_inspect(*args); });
}

}  // namespace dsv4
