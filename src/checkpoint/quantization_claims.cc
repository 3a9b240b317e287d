// quantization_claims.cc: the two schemas of ModelOpt and expert_dtype; see quantization_claims.h.
#include "checkpoint/quantization_claims.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <set>
#include <string_view>

#include "base/error.h"
#include "checkpoint/json_fields.h"
#include "checkpoint/tensor_names.h"
#include "io/atomic_file.h"

namespace dsv4 {
namespace {

using nlohmann::json;

constexpr std::string_view kExperts = ".ffn.experts";
// Pro lists about 600 exceptions of 40 characters; more would only cost time.
constexpr std::size_t kMaxExceptions = 1 << 14, kMaxPatternBytes = 256;

const json* child(const json& object, std::string_view key) {
  if (!object.is_object()) return nullptr;
  const auto it = object.find(key);
  return it == object.end() ? nullptr : &*it;
}

bool is_nvfp4(const json* algorithm) {
  return algorithm != nullptr && algorithm->is_string() &&
         algorithm->get_ref<const std::string&>().find("NVFP4") != std::string::npos;
}

// What one ModelOpt object says: which layers' experts are NVFP4. Newer files list modules
// (layers.0.ffn.experts), older ones matrices (layers.0.ffn.experts.0.w1); others have only the
// algorithm and a list of exceptions.
class ModelOptClaims {
 public:
  explicit ModelOptClaims(const json& quantization) {
    if (const json* layers = child(quantization, "quantized_layers");
        layers != nullptr && layers->is_object() && !layers->empty()) {
      has_list_ = true;
      for (auto it = layers->begin(); it != layers->end(); ++it) {
        const std::string name = official_name(it.key());
        const std::size_t experts = name.find(kExperts);
        if (experts != std::string::npos && is_nvfp4(child(*it, "quant_algo"))) {
          listed_.insert(name.substr(0, experts));
        }
      }
    }
    has_algorithm_ = is_nvfp4(child(quantization, "quant_algo")) ||
                     is_nvfp4(child(quantization, "moe_quant_algo"));
    for (const char* key : {"ignore", "exclude_modules"}) {
      const json* names = child(quantization, key);
      if (names == nullptr || !names->is_array()) continue;
      for (const json& name : *names) {
        if (!name.is_string() || exceptions_.size() == kMaxExceptions) continue;
        const auto& pattern = name.get_ref<const std::string&>();
        if (pattern.size() <= kMaxPatternBytes) exceptions_.push_back(pattern);
      }
    }
  }

  bool has_any() const { return has_list_ || has_algorithm_; }
  bool says_nvfp4(const std::string& layer) const {
    if (has_list_) return listed_.count(layer) > 0;
    for (const std::string& pattern : exceptions_) {
      if (fits_pattern(layer + std::string(kExperts), pattern)) return false;
    }
    return has_algorithm_;
  }

 private:
  bool has_list_ = false, has_algorithm_ = false;
  std::set<std::string> listed_;
  std::vector<std::string> exceptions_;
};

void compare(const json& quantization, std::string_view where, const BindReport& report,
             std::vector<std::string>& notes) {
  const ModelOptClaims claims(quantization);
  if (!claims.has_any()) return;
  int differing = 0;
  std::string first;
  for (const LayerSummary& layer : report.layers) {
    const bool claimed = claims.says_nvfp4(layer.name);
    if (claimed == (layer.expert_formats == "NVFP4") || ++differing > 1) continue;
    first = fmt::format("{}: {} by the file, {} by the tensors", layer.name,
                        claimed ? "NVFP4" : "not NVFP4", layer.expert_formats);
  }
  if (differing == 0) return;
  notes.push_back(
      fmt::format("{} contradicts the tensors on the format of the experts of {} layers ({}); the "
                  "tensors decide.",
                  where, differing, first));
}

void compare_expert_dtype(const json& config, const BindReport& report,
                          std::vector<std::string>& notes) {
  const json* dtype = child(config, "expert_dtype");
  if (dtype == nullptr || !dtype->is_string() || report.layers.empty()) return;
  const std::string& claimed = dtype->get_ref<const std::string&>();
  const std::string& stored = report.layers[0].expert_formats;
  const bool is_four_bit = stored == "MXFP4" || stored == "NVFP4";
  if ((claimed == "fp4" && is_four_bit) || (claimed == "fp8" && stored == "FP8")) return;
  notes.push_back(
      fmt::format("config.json says expert_dtype {}, the experts are {}; the tensors decide.",
                  in_quotes(claimed), stored));
}

}  // namespace

bool fits_pattern(std::string_view name, std::string_view pattern) {
  // Greedy with one way back: the last star takes one character more.
  std::size_t n = 0, p = 0;
  std::size_t star = pattern.npos, star_name = 0;
  while (n < name.size()) {
    if (p < pattern.size() && pattern[p] == '*') {
      star = p++;
      star_name = n;
    } else if (p < pattern.size() && pattern[p] == name[n]) {
      ++p;
      ++n;
    } else if (star != pattern.npos) {
      p = star + 1;
      n = ++star_name;
    } else {
      return false;
    }
  }
  while (p < pattern.size() && pattern[p] == '*') ++p;
  return p == pattern.size();
}

std::vector<std::string> check_quantization_claims(const std::filesystem::path& dir,
                                                   const BindReport& report) {
  std::vector<std::string> notes;
  const auto read = [&](std::string_view file, auto&& use) {
    const std::filesystem::path path = dir / file;
    std::error_code error;
    if (!std::filesystem::exists(path, error)) return;
    try {
      use(parse_json_object(read_text_file(path, kMaxConfigBytes), path.string()));
    } catch (const Error& e) {
      notes.push_back(fmt::format("{} was not read: {}", file, e.what()));
    }
  };
  read("config.json", [&](const json& config) {
    compare_expert_dtype(config, report, notes);
    if (const json* quantization = child(config, "quantization_config")) {
      compare(*quantization, "quantization_config in config.json", report, notes);
    }
  });
  read("hf_quant_config.json", [&](const json& file) {
    if (const json* quantization = child(file, "quantization")) {
      compare(*quantization, "hf_quant_config.json", report, notes);
    }
  });
  return notes;
}

}  // namespace dsv4
