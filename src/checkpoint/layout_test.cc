// layout_test.cc: the tensor table against the published releases.
#include "checkpoint/layout.h"

#include <gtest/gtest.h>

#include <map>
#include <memory>
#include <set>

#include "checkpoint/bind.h"
#include "io/io_test_files.h"

namespace dsv4 {
namespace {

std::map<DType, std::int64_t> count_dtypes(const std::vector<TensorInfo>& tensors) {
  std::map<DType, std::int64_t> counts;
  for (const TensorInfo& t : tensors) ++counts[t.dtype];
  return counts;
}

std::shared_ptr<const TensorStore> header_store(const ModelConfig& config,
                                                const LayoutFormats& formats) {
  return std::make_shared<const TensorStore>(
      TensorStore::from_headers(expected_tensors(config, formats)));
}

std::int64_t used_bytes(const BindReport& report) {
  std::int64_t bytes = 0;
  for (const FormatTotal& total : report.totals) bytes += total.bytes;
  return bytes;
}

// Numbers of the official releases: tensors, payload and dtypes.
TEST(Layout, FlashHasThePublishedTensors) {
  const auto tensors = expected_tensors(flash_config(), kOfficialFormats);
  EXPECT_EQ(tensors.size(), 69187u);
  EXPECT_EQ(TensorStore::from_headers(tensors).payload_bytes(), 159'609'485'896);
  const std::map<DType, std::int64_t> want{{DType::kBF16, 433}, {DType::kF32, 417},
                                           {DType::kE4M3, 375}, {DType::kE8M0, 34167},
                                           {DType::kI8, 33792}, {DType::kI64, 3}};
  EXPECT_EQ(count_dtypes(tensors), want);
}

TEST(Layout, ProHasThePublishedTensors) {
  const auto tensors = expected_tensors(pro_config(), kOfficialFormats);
  EXPECT_EQ(tensors.size(), 145116u);
  EXPECT_EQ(TensorStore::from_headers(tensors).payload_bytes(), 864'704'792'696);
  const std::map<DType, std::int64_t> want{{DType::kBF16, 619}, {DType::kF32, 590},
                                           {DType::kE4M3, 528}, {DType::kE8M0, 71952},
                                           {DType::kI8, 71424}, {DType::kI64, 3}};
  EXPECT_EQ(count_dtypes(tensors), want);
}

TEST(Layout, FlashInNvfp4HasThePublishedTensors) {
  const auto tensors = expected_tensors(flash_config(), kModelOptNvfp4Formats);
  EXPECT_EQ(tensors.size(), 135235u);
  const auto counts = count_dtypes(tensors);
  EXPECT_EQ(counts.at(DType::kU8), 43 * 256 * 3);
  EXPECT_EQ(counts.at(DType::kI8), 256 * 3);  // the draft block stays MXFP4
}

TEST(Layout, ShapesAreThoseOfTheReleases) {
  std::map<std::string, Shape> pro;
  for (const TensorInfo& t : expected_tensors(pro_config(), kOfficialFormats))
    pro[t.name] = t.shape;
  // hidden (7168) and the width of an output group (4096) coincide on Flash only.
  EXPECT_EQ(pro.at("layers.0.attn.wo_a.weight"), (Shape{16384, 4096}));
  EXPECT_EQ(pro.at("layers.0.attn.wo_a.scale"), (Shape{128, 32}));
  EXPECT_EQ(pro.at("layers.0.attn.wo_b.scale"), (Shape{56, 128}));
  EXPECT_EQ(pro.at("layers.2.attn.compressor.ape"), (Shape{4, 1024}));
  EXPECT_EQ(pro.at("layers.0.attn.compressor.ape"), (Shape{128, 512}));
  EXPECT_EQ(pro.at("layers.2.attn.indexer.compressor.wkv.weight"), (Shape{256, 7168}));
  EXPECT_EQ(pro.at("layers.60.ffn.experts.383.w2.scale"), (Shape{7168, 96}));
  EXPECT_EQ(pro.at("layers.2.ffn.gate.tid2eid"), (Shape{129280, 6}));
  EXPECT_EQ(pro.at("mtp.0.ffn.gate.bias"), (Shape{384}));
  EXPECT_EQ(pro.count("layers.2.ffn.gate.bias"), 0u);
  EXPECT_EQ(pro.count("layers.1.attn.indexer.wq_b.weight"), 0u);
}

struct Release {
  std::string name;
  ModelConfig config;
  LayoutFormats formats;
  std::string experts, draft_experts, linears;
};

TEST(Layout, EveryReleaseBindsWholeWithItsDraftBlock) {
  for (const Release& release :
       {Release{"Flash", flash_config(), kOfficialFormats, "MXFP4", "MXFP4", "FP8"},
        Release{"Pro", pro_config(), kOfficialFormats, "MXFP4", "MXFP4", "FP8"},
        Release{"Flash-NVFP4", flash_config(), kModelOptNvfp4Formats, "NVFP4", "MXFP4", "FP8"},
        Release{"Pro-NVFP4", pro_config(), kModelOptNvfp4Formats, "NVFP4", "MXFP4", "FP8"},
        Release{"Flash-Base", flash_config(), kFp8ExpertFormats, "FP8", "FP8", "FP8"},
        Release{"Flash-Base repacked", flash_config(),
                LayoutFormats{Format::kE4m3, Format::kE4m3, Format::kE4m3, DType::kE8M0}, "FP8",
                "FP8", "FP8"},
        Release{"Pro-Base", pro_config(), kFp8ExpertFormats, "FP8", "FP8", "FP8"},
        // Rarri, tsarihan.
        Release{"Flash with an NVFP4 draft", flash_config(),
                LayoutFormats{Format::kE4m3, Format::kNvfp4, Format::kNvfp4, DType::kE8M0}, "NVFP4",
                "NVFP4", "FP8"},
        // canada-quant.
        Release{"Flash with a BF16 draft", flash_config(),
                LayoutFormats{Format::kE4m3, Format::kNvfp4, Format::kBf16, DType::kE8M0}, "NVFP4",
                "BF16", "FP8"},
        Release{"Flash BF16", flash_config(), kBf16Formats, "BF16", "BF16", "BF16"}}) {
    SCOPED_TRACE(release.name);
    const auto store = header_store(release.config, release.formats);
    const ModelWeights weights = bind_weights(release.config, store);
    const auto num_layers = static_cast<std::size_t>(release.config.num_layers);
    ASSERT_EQ(weights.layers.size(), num_layers);
    ASSERT_TRUE(weights.draft.has_value());
    ASSERT_EQ(weights.report.layers.size(), num_layers + 1);
    for (std::size_t i = 0; i <= num_layers; ++i) {
      const LayerSummary& row = weights.report.layers[i];
      EXPECT_EQ(row.linear_formats, release.linears) << row.name;
      EXPECT_EQ(row.expert_formats, i < num_layers ? release.experts : release.draft_experts);
      EXPECT_EQ(row.routed_by_hash, i < 3) << row.name;
    }
    EXPECT_TRUE(weights.report.unused.empty());
    EXPECT_EQ(used_bytes(weights.report), store->payload_bytes());
  }
}

TEST(Layout, LayerClassesOfFlashAndPro) {
  const auto classes = [](const ModelConfig& config) {
    std::map<int, int> counts;
    for (int ratio : config.compress_ratios) ++counts[ratio];
    return counts;
  };
  EXPECT_EQ(classes(flash_config()), (std::map<int, int>{{0, 2}, {4, 21}, {128, 20}}));
  EXPECT_EQ(classes(pro_config()), (std::map<int, int>{{4, 30}, {128, 31}}));
}

TEST(Layout, NamesAreUnique) {
  std::set<std::string> names;
  for (const TensorInfo& t : expected_tensors(flash_config(), kModelOptNvfp4Formats)) {
    EXPECT_TRUE(names.insert(t.name).second) << t.name;
  }
}

// One tensor of each kind gone from a whole Flash: the message names it and nothing else.
TEST(Layout, OneMissingTensorOfFlashIsNamed) {
  const auto all = expected_tensors(flash_config(), kModelOptNvfp4Formats);
  for (const std::string name :
       {"embed.weight", "hc_head_scale", "layers.0.ffn.gate.tid2eid", "layers.3.ffn.gate.bias",
        "layers.42.ffn.experts.255.w3.weight", "layers.42.ffn.experts.255.w3.weight_scale",
        "layers.42.ffn.experts.255.w3.weight_scale_2", "layers.7.attn.wkv.scale",
        "mtp.0.ffn.experts.9.w2.scale", "mtp.0.norm.weight"}) {
    std::vector<TensorInfo> tensors = all;
    EXPECT_EQ(std::erase_if(tensors, [&](const TensorInfo& t) { return t.name == name; }), 1u);
    const auto store =
        std::make_shared<const TensorStore>(TensorStore::from_headers(std::move(tensors)));
    expect_error(ErrorCode::kBadCheckpoint, {"1 missing", name},
                 [&] { bind_weights(flash_config(), store); });
  }
}

TEST(Layout, RefusesInputsThatDoNotFillQuantBlocks) {
  ModelConfig config = flash_config();
  config.expert_inter = 2048 + 16;  // of w2; a multiple of 16, not of 32
  expect_error(ErrorCode::kBadRequest, {"layers.0.ffn.experts.0.w2.weight", "2064", "32"},
               [&] { expected_tensors(config, kOfficialFormats); });
  LayoutFormats formats = kModelOptNvfp4Formats;
  formats.draft_experts = Format::kNvfp4;
  EXPECT_FALSE(expected_tensors(config, formats).empty());
  config.expert_inter = 2048 + 15;
  expect_error(ErrorCode::kBadRequest, {"w2.weight", "2063", "16"},
               [&] { expected_tensors(config, formats); });
}

// Three DSpark stages as published in V4-Flash-0731 and -Pro-0813: blocks like the draft block's,
// without its own projections and norms, and the drafter's heads.
std::vector<TensorInfo> with_dspark_stages(const ModelConfig& config, std::int64_t markov_rank) {
  std::vector<TensorInfo> tensors;
  for (const TensorInfo& t : expected_tensors(config, kOfficialFormats)) {
    if (!t.name.starts_with("mtp.0.")) {
      tensors.push_back(t);
      continue;
    }
    const std::string rest = t.name.substr(6);
    const bool is_own = rest.starts_with("e_proj") || rest.starts_with("h_proj") ||
                        rest == "enorm.weight" || rest == "hnorm.weight";
    const bool is_head = rest == "norm.weight" || rest.starts_with("hc_head");
    for (int stage = 0; stage < 3 && !is_own; ++stage) {
      if (is_head && stage != 2) continue;
      tensors.push_back({"mtp." + std::to_string(stage) + "." + rest, t.dtype, t.shape});
    }
  }
  const std::int64_t h = config.hidden_size;
  tensors.push_back({"mtp.0.main_proj.weight", DType::kE4M3, {h, 3 * h}});
  tensors.push_back({"mtp.0.main_proj.scale", DType::kE8M0, {h / 128, 3 * h / 128}});
  tensors.push_back({"mtp.0.main_norm.weight", DType::kBF16, {h}});
  for (const char* w : {"markov_w1", "markov_w2"}) {
    tensors.push_back({"mtp.2.markov_head." + std::string(w) + ".weight",
                       DType::kBF16,
                       {config.vocab_size, markov_rank}});
  }
  tensors.push_back({"mtp.2.confidence_head.proj.weight", DType::kBF16, {1, h + markov_rank}});
  return tensors;
}

TEST(Layout, DsparkReleasesBindTheirTrunk) {
  struct Dspark {
    ModelConfig config;
    std::int64_t markov_rank, tensors, bytes;
  };
  for (const Dspark& release : {Dspark{flash_config(), 256, 72317, 166'878'536'440},
                                Dspark{pro_config(), 512, 149782, 892'727'580'904}}) {
    auto tensors = with_dspark_stages(release.config, release.markov_rank);
    ASSERT_EQ(static_cast<std::int64_t>(tensors.size()), release.tensors);
    const auto store =
        std::make_shared<const TensorStore>(TensorStore::from_headers(std::move(tensors)));
    ASSERT_EQ(store->payload_bytes(), release.bytes);
    // num_nextn_predict_layers is still 1 there; the tensors alone tell, too.
    for (const bool by_config : {true, false}) {
      ModelConfig config = release.config;
      config.has_dspark = by_config;
      const ModelWeights weights = bind_weights(config, store);
      EXPECT_FALSE(weights.draft.has_value());
      EXPECT_EQ(weights.report.notes.size(), 1u);
      std::int64_t unused = 0;
      for (const UnusedTensor& t : weights.report.unused) {
        EXPECT_EQ(t.reason, "DSpark draft stages");
        unused += t.bytes;
      }
      EXPECT_EQ(used_bytes(weights.report) + unused, release.bytes);
    }
  }
}

TEST(Layout, DsparkStagesAreNotInvented) {
  ModelConfig config = flash_config();
  config.has_dspark = true;
  for (const TensorInfo& t : expected_tensors(config, kOfficialFormats)) {
    ASSERT_FALSE(t.name.starts_with("mtp.")) << t.name;
  }
}

}  // namespace
}  // namespace dsv4
