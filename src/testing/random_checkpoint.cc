#include "testing/random_checkpoint.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "io/safetensors_writer.h"
#include "io/tensor_store.h"
#include "numerics/bf16.h"

namespace dsv4 {
namespace {

// SplitMix64 (https://prng.di.unimi.it/splitmix64.c): a gigabyte in a second.
class Random {
 public:
  explicit Random(std::uint64_t seed) : state_(seed) {}
  std::uint64_t next() {
    state_ += 0x9E3779B97F4A7C15u;
    std::uint64_t z = state_;
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
    return z ^ (z >> 31);
  }
  // In [-1, 1).
  float uniform() { return static_cast<float>(static_cast<std::int64_t>(next()) * 0x1p-63); }

 private:
  std::uint64_t state_;
};

bool ends_with(std::string_view text, std::string_view end) {
  return text.size() >= end.size() && text.substr(text.size() - end.size()) == end;
}

template <class T, class Make>
void fill(std::vector<std::byte>& bytes, Make&& make) {
  for (std::size_t at = 0; at < bytes.size(); at += sizeof(T)) {
    const T value = make();
    std::memcpy(bytes.data() + at, &value, sizeof(T));
  }
}

// Norm weights lie around 1; other plain weights are of the order of 1 / sqrt(inputs).
float plain_value(const TensorInfo& tensor, Random& random) {
  if (tensor.shape.rank() <= 1) return 1.0f + 0.1f * random.uniform();
  const auto inputs = static_cast<float>(tensor.shape[tensor.shape.rank() - 1]);
  return random.uniform() / std::sqrt(inputs);
}

// E4M3 without its NaN codes; E8M0 scales of 2^-8 .. 2^-5 as published checkpoints have them.
void fill_tensor(const TensorInfo& tensor, const ModelConfig& config, Random& random,
                 std::vector<std::byte>& bytes) {
  switch (tensor.dtype) {
    case DType::kF32:
      if (ends_with(tensor.name, ".weight_scale_2") || ends_with(tensor.name, ".input_scale")) {
        fill<float>(bytes, [] { return 0x1p-11f; });
      } else if (ends_with(tensor.name, ".scale") && tensor.shape.rank() == 2) {  // of FP8 blocks
        fill<float>(bytes, [&] { return 0.015f + 0.005f * random.uniform(); });
      } else {
        fill<float>(bytes, [&] { return plain_value(tensor, random); });
      }
      return;
    case DType::kBF16:
      fill<std::uint16_t>(bytes, [&] { return encode_bf16(plain_value(tensor, random)); });
      return;
    case DType::kI64:  // a hash table
      fill<std::int64_t>(bytes, [&] {
        return static_cast<std::int64_t>(random.next() %
                                         static_cast<std::uint64_t>(config.num_experts));
      });
      return;
    case DType::kE8M0:
      fill<std::uint8_t>(bytes, [&] { return static_cast<std::uint8_t>(115 + random.next() % 8); });
      return;
    case DType::kE4M3: {
      const bool is_scale = ends_with(tensor.name, ".weight_scale");  // of NVFP4: positive
      fill<std::uint8_t>(bytes, [&] {
        const std::uint64_t bits = random.next();
        if (is_scale) return static_cast<std::uint8_t>(0x30 + bits % 16);
        const auto code = static_cast<std::uint8_t>(bits);
        return (code & 0x7F) == 0x7F ? static_cast<std::uint8_t>(code ^ 1) : code;
      });
      return;
    }
    default:  // packed E2M1: every byte is valid
      fill<std::uint8_t>(bytes, [&] { return static_cast<std::uint8_t>(random.next()); });
  }
}

void write_config(const std::filesystem::path& dir, const ModelConfig& c) {
  nlohmann::ordered_json json;
  json["architectures"] = {"DeepseekV4ForCausalLM"};
  json["model_type"] = "deepseek_v4";
  json["vocab_size"] = c.vocab_size;
  json["hidden_size"] = c.hidden_size;
  json["num_hidden_layers"] = c.num_layers;
  json["max_position_embeddings"] = c.max_positions;
  json["bos_token_id"] = c.bos_id;
  json["eos_token_id"] = c.eos_ids.at(0);
  json["num_attention_heads"] = c.num_heads;
  json["num_key_value_heads"] = 1;
  json["head_dim"] = c.head_dim;
  json["qk_rope_head_dim"] = c.rope_dim;
  json["q_lora_rank"] = c.q_low_rank;
  json["o_groups"] = c.num_output_groups;
  json["o_lora_rank"] = c.o_low_rank;
  json["sliding_window"] = c.window;
  json["rope_theta"] = c.rope_theta;
  json["compress_rope_theta"] = c.compress_rope_theta;
  json["rope_scaling"] = {{"type", "yarn"},
                          {"factor", c.yarn.factor},
                          {"original_max_position_embeddings", c.yarn.original_length},
                          {"beta_fast", c.yarn.beta_fast},
                          {"beta_slow", c.yarn.beta_slow}};
  std::vector<int> ratios = c.compress_ratios;
  ratios.insert(ratios.end(), c.draft_compress_ratios.begin(), c.draft_compress_ratios.end());
  json["compress_ratios"] = ratios;
  json["index_n_heads"] = c.index_heads;
  json["index_head_dim"] = c.index_head_dim;
  json["index_topk"] = c.index_top_k;
  json["n_routed_experts"] = c.num_experts;
  json["num_experts_per_tok"] = c.experts_per_token;
  json["moe_intermediate_size"] = c.expert_inter;
  json["n_shared_experts"] = c.num_shared_experts;
  json["num_hash_layers"] = c.num_hash_layers;
  json["routed_scaling_factor"] = c.routed_scale;
  json["scoring_func"] = "sqrtsoftplus";
  json["topk_method"] = "noaux_tc";
  json["norm_topk_prob"] = true;
  json["swiglu_limit"] = c.swiglu_limit;
  json["hidden_act"] = "silu";
  json["hc_mult"] = c.hc_copies;
  json["hc_sinkhorn_iters"] = c.sinkhorn_iters;
  json["hc_eps"] = c.hc_eps;
  json["rms_norm_eps"] = c.norm_eps;
  json["num_nextn_predict_layers"] = c.num_draft_blocks;
  json["tie_word_embeddings"] = false;
  std::ofstream(dir / "config.json") << json.dump(1) << "\n";
}

void set_num_layers(ModelConfig& config, int num_layers) {
  config.num_layers = num_layers;
  config.compress_ratios = {0};
  while (static_cast<int>(config.compress_ratios.size()) < num_layers) {
    config.compress_ratios.push_back(config.compress_ratios.size() % 2 == 1 ? 4 : 128);
  }
}

std::int64_t payload_of(const ModelConfig& config, const LayoutFormats& formats) {
  return TensorStore::from_headers(expected_tensors(config, formats)).payload_bytes();
}

}  // namespace

ModelConfig scaled_flash_config(std::int64_t payload_bytes, const LayoutFormats& formats) {
  ModelConfig config = flash_config();
  config.vocab_size = 4096;
  config.hidden_size = 1024;
  config.num_heads = 16;
  config.q_low_rank = 512;
  config.num_output_groups = 4;
  config.o_low_rank = 256;
  config.num_experts = 32;
  config.expert_inter = 1024;
  config.index_heads = 16;
  config.index_top_k = 64;
  config.num_hash_layers = 1;
  config.max_positions = 65536;
  config.num_draft_blocks = 0;
  config.draft_compress_ratios.clear();
  set_num_layers(config, 3);
  const std::int64_t three = payload_of(config, formats);
  set_num_layers(config, 5);
  const std::int64_t two_more = payload_of(config, formats) - three;
  set_num_layers(config, 3);
  if (payload_bytes > three) {
    set_num_layers(config,
                   3 + static_cast<int>((2 * (payload_bytes - three) + two_more / 2) / two_more));
  }
  return config;
}

std::int64_t write_random_checkpoint(const std::filesystem::path& dir, const ModelConfig& config,
                                     const LayoutFormats& formats, std::uint64_t seed) {
  std::filesystem::create_directories(dir);
  write_config(dir, config);
  const TensorStore store = TensorStore::from_headers(expected_tensors(config, formats));
  std::vector<TensorDeclaration> declarations;
  for (const StoredTensor& tensor : store.tensors()) {
    declarations.push_back({tensor.info->name, tensor.info->dtype, tensor.info->shape});
  }
  SafetensorsWriter writer(dir / kSingleFileName, std::move(declarations));
  Random random(seed);
  std::vector<std::byte> bytes;
  for (const StoredTensor& tensor : store.tensors()) {
    bytes.resize(static_cast<std::size_t>(tensor.info->size_bytes()));
    fill_tensor(*tensor.info, config, random, bytes);
    writer.append(tensor.info->name, bytes);
  }
  writer.finish();
  return store.payload_bytes();
}

std::int64_t write_sparse_checkpoint(const std::filesystem::path& dir, const ModelConfig& config,
                                     const LayoutFormats& formats) {
  std::filesystem::create_directories(dir);
  write_config(dir, config);
  std::vector<TensorInfo> tensors = expected_tensors(config, formats);
  std::stable_partition(tensors.begin(), tensors.end(),
                        [](const TensorInfo& tensor) { return tensor.dtype != DType::kE8M0; });
  const TensorStore store = TensorStore::from_headers(std::move(tensors));
  nlohmann::ordered_json json;
  for (const StoredTensor& tensor : store.tensors()) {
    const TensorInfo& info = *tensor.info;
    std::vector<std::int64_t> shape;
    for (int i = 0; i < info.shape.rank(); ++i) shape.push_back(info.shape[i]);
    json[info.name] = {{"dtype", dtype_name(info.dtype)},
                       {"shape", shape},
                       {"data_offsets", {info.begin, info.end}}};
  }
  std::string header = json.dump();
  header.resize((header.size() + 7) / 8 * 8, ' ');
  const std::uint64_t length = header.size();
  const std::filesystem::path path = dir / kSingleFileName;
  std::ofstream(path, std::ios::binary).write(reinterpret_cast<const char*>(&length), 8) << header;
  std::filesystem::resize_file(path,
                               8 + length + static_cast<std::uintmax_t>(store.payload_bytes()));
  return store.payload_bytes();
}

}  // namespace dsv4
