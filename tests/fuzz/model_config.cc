// model_config.cc: fuzzes config.json in its three spellings and generation_config.json: what is
// accepted keeps its bounds, so that sizes can be computed and tensors listed.
#include "checkpoint/model_config.h"

#include <cmath>

#include "checkpoint/layout.h"
#include "fuzz.h"

namespace dsv4::fuzz {
namespace {

// Values that kernels take as FP32 are numbers there, too.
void check_float(double value) {
  FUZZ_CHECK(std::isfinite(static_cast<float>(value)));
  FUZZ_CHECK(value == 0 || static_cast<float>(value) != 0);
}

void parse_config(std::string_view json) {
  const ModelConfig config = parse_model_config(json, "fuzz");
  check(config, "fuzz");
  FUZZ_CHECK(config.compress_ratios.size() == static_cast<std::size_t>(config.num_layers));
  FUZZ_CHECK(config.output_group_dim() > 0 && config.shared_inter() > 0);
  FUZZ_CHECK(config.num_hc_mixes() > 0);
  for (const double value : {config.rope_theta, config.compress_rope_theta, config.yarn.factor,
                             config.yarn.beta_fast, config.yarn.beta_slow, config.routed_scale,
                             config.swiglu_limit, config.hc_eps, config.norm_eps}) {
    check_float(value);
  }
  // The list of a large model takes milliseconds; its shapes do not depend on the numbers here.
  const std::int64_t num_experts = std::int64_t{config.num_experts} * config.num_layers;
  if (num_experts > 64 || config.num_layers > 16) return;
  for (const TensorInfo& tensor : expected_tensors(config, kModelOptNvfp4Formats)) {
    FUZZ_CHECK(tensor_name_fault(tensor.name).empty());
    FUZZ_CHECK(tensor_bytes(tensor.dtype, tensor.shape).value_or(0) > 0);
  }
}

void parse_generation(std::string_view json) {
  const GenerationDefaults defaults = parse_generation_defaults(json, "fuzz");
  FUZZ_CHECK(defaults.temperature >= 0 && defaults.temperature <= 100);
  FUZZ_CHECK(defaults.top_p > 0 && defaults.top_p <= 1);
  check_float(defaults.temperature);
  check_float(defaults.top_p);
}

}  // namespace
}  // namespace dsv4::fuzz

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace dsv4::fuzz;
  const std::string_view json = as_text(data, size);
  accepted([&] { parse_config(json); });
  accepted([&] { parse_generation(json); });
  return 0;
}
