// verify_command.cc: dsv4 verify: whether this build computes a model as a recorded correct run
// did. The judgement is runtime/verify.h.
#include <fmt/format.h>

#include <cmath>
#include <memory>
#include <nlohmann/json.hpp>

#include "backends/backends.h"
#include "checkpoint/bind.h"
#include "commands.h"
#include "common_options.h"
#include "console.h"
#include "runtime/verify.h"

namespace dsv4 {
namespace {

struct VerifyArguments {
  ModelArguments model;
  std::string golden;
  bool json = false;
};

// JSON knows no infinity: null stands for an error that is none and for a limit that is not set.
nlohmann::ordered_json finite_or_null(double value) {
  if (!std::isfinite(value)) return nullptr;
  return value;
}

nlohmann::ordered_json to_json(const VerifyCheck& check) {
  nlohmann::ordered_json json;
  json["name"] = check.name;
  if (check.layer_idx >= 0) json["layer"] = check.layer_idx;
  json["rows"] = check.errors.rows;
  const auto figure = [&json](const char* key, double error, double limit) {
    json[key] = {{"error", finite_or_null(error)}, {"limit", finite_or_null(limit)}};
  };
  figure("median", check.errors.median, check.limits.median);
  figure("p95", check.errors.p95, check.limits.p95);
  figure("max", check.errors.max, check.limits.max);
  json["passed"] = check.passed();
  return json;
}

std::string report_json(const VerifyReport& report) {
  nlohmann::ordered_json json;
  json["passed"] = report.passed();
  const std::optional<int> layer = report.first_departing_layer();
  json["first_departing_layer"] = layer ? nlohmann::ordered_json(*layer) : nullptr;
  json["checks"] = nlohmann::ordered_json::array();
  for (const VerifyCheck& check : report.checks) json["checks"].push_back(to_json(check));
  return json.dump() + "\n";
}

std::string report_text(const VerifyReport& report) {
  std::string text;
  for (const VerifyCheck& check : report.checks) text += check.to_string() + "\n";
  return text + report.summary() + "\n";
}

VerifyReport compute_report(const VerifyArguments& args) {
  const InterruptGuard guard;
  const std::unique_ptr<Backend> backend = open_backend(args.model.device, args.model.threads);
  ProgressBar bar("verifying", "tokens");
  return verify_golden(load_checkpoint(args.model.model_dir, {.progress = load_progress_bar()}),
                       *backend, args.model.model_options(), args.golden,
                       [&bar](std::int64_t done, std::int64_t total) {
                         InterruptGuard::check();
                         bar.update(done, total);
                       });
}

void run_verify(const VerifyArguments& args) {
  const VerifyReport report = compute_report(args);
  print_precision_note(report.precision_note);
  write_stdout(args.json ? report_json(report) : report_text(report));
  if (!report.passed()) throw CLI::RuntimeError(1);
}

}  // namespace

void add_verify_command(CLI::App& app) {
  CLI::App* command =
      app.add_subcommand("verify", "compare a model with the recorded values of a correct run");
  const auto args = std::make_shared<VerifyArguments>();
  args->model.add_to(*command);
  command
      ->add_option("--golden", args->golden,
                   "safetensors file of the recorded values, with prompts.json beside it")
      ->type_name("FILE")
      ->required();
  command->add_flag("--json", args->json, "one JSON object, with all figures");
  command->footer(
      "Every layer is fed the recorded output of the layer before it and compared; then the\n"
      "logits of the whole model. Prints the relative error of the tokens' rows (median, 95th\n"
      "percentile, largest) with its limits, and the first layer that departs. Choose the\n"
      "activations and rows that the values were recorded with. Needs no tokenizer. Exit code 1\n"
      "if a check fails.\n"
      "Examples:\n"
      "  cd tests/data/golden/flash-bf16\n"
      "  dsv4 verify . --golden golden-fp32.safetensors --activations a16 --rows exact\n"
      "  dsv4 verify . --golden golden-qat.safetensors --activations a16 --json");
  command->callback([args] { run_verify(*args); });
}

}  // namespace dsv4
