// quantize_test.cc: whole runs on the recorded models and on nano: what is cast decodes to the same
// bits, the rest is the same bytes, the result loads, and nothing but the options decides the
// bytes.
#include "quantizer/quantize.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "numerics/bits.h"
#include "quantizer/output_directory.h"
#include "quantizer/quantize_fixtures.h"

namespace dsv4 {
namespace {

using testing::Contains;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;

nlohmann::json read_json(const std::filesystem::path& path) {
  return nlohmann::json::parse(get_file(path));
}

// Tensors that are no part of a quantised matrix: the same bytes under the same names.
void expect_other_tensors_copied(const std::filesystem::path& got,
                                 const std::filesystem::path& want) {
  const TensorStore got_store = TensorStore::open(got), want_store = TensorStore::open(want);
  std::int64_t same = 0;
  for (const StoredTensor& tensor : want_store.tensors()) {
    if (tensor.info->name.find(".ffn.experts.") != std::string::npos &&
        !tensor.info->name.starts_with("mtp.")) {
      continue;
    }
    const auto other = got_store.find(tensor.info->name);
    ASSERT_TRUE(other.has_value()) << tensor.info->name;
    EXPECT_EQ(other->info->dtype, tensor.info->dtype);
    EXPECT_EQ(other->info->shape, tensor.info->shape);
    EXPECT_TRUE(to_text(other->bytes) == to_text(tensor.bytes)) << tensor.info->name;
    ++same;
  }
  EXPECT_GT(same, 100);
}

class CastModel : public testing::TestWithParam<const char*> {
 protected:
  static std::filesystem::path source() {
    return GetParam() == std::string("nano") ? nano_dir() : golden_dir(GetParam());
  }
};

TEST_P(CastModel, IsLosslessInBothLayoutsAndBack) {
  const TempDir dir;
  for (const Nvfp4Layout layout : {Nvfp4Layout::kModelOpt, Nvfp4Layout::kCompressedTensors}) {
    const bool is_modelopt = layout == Nvfp4Layout::kModelOpt;
    SCOPED_TRACE(is_modelopt ? "modelopt" : "compressed-tensors");
    const auto out = dir / (is_modelopt ? "a" : "b"), back = dir / (is_modelopt ? "a2" : "b2");
    QuantizeJob job = quantize_job(source(), out);
    job.layout = layout;
    const QuantizeResult result = quantize_checkpoint(job);
    EXPECT_TRUE(result.report.total().tally.lossless());
    EXPECT_EQ(result.report.total().tally.reencoded_blocks, 0);
    expect_same_values(out, source());
    expect_other_tensors_copied(out, source());
    const auto weights = load_checkpoint(out);
    EXPECT_EQ(weights->report.layers.front().expert_formats, "NVFP4");
    EXPECT_EQ(weights->report.layers.back().expert_formats, "MXFP4");  // the draft block
    for (const std::string& note : weights->report.notes) {
      EXPECT_THAT(note, Not(HasSubstr("contradicts")));
    }
    // Into the other layout.
    job = quantize_job(out, back);
    job.layout = is_modelopt ? Nvfp4Layout::kCompressedTensors : Nvfp4Layout::kModelOpt;
    EXPECT_TRUE(quantize_checkpoint(job).report.total().tally.lossless());
    expect_same_values(back, source());
  }
  // Either way to a layout ends with the same tensors.
  EXPECT_TRUE(get_file(dir / "a/model.safetensors") == get_file(dir / "b2/model.safetensors"));
  EXPECT_TRUE(get_file(dir / "b/model.safetensors") == get_file(dir / "a2/model.safetensors"));
  EXPECT_EQ(get_file(dir / "a/config.json"), get_file(dir / "b2/config.json"));
}

TEST_P(CastModel, AgainGivesTheSameFiles) {
  const TempDir dir;
  for (const Nvfp4Layout layout : {Nvfp4Layout::kModelOpt, Nvfp4Layout::kCompressedTensors}) {
    const std::string name = layout == Nvfp4Layout::kModelOpt ? "m" : "c";
    QuantizeJob job = quantize_job(source(), dir / (name + "1"));
    job.layout = layout;
    quantize_checkpoint(job);
    job.in = job.out;
    job.out = dir / (name + "2");
    quantize_checkpoint(job);
    EXPECT_TRUE(get_file(job.in / "model.safetensors") == get_file(job.out / "model.safetensors"));
    EXPECT_EQ(get_file(job.in / "config.json"), get_file(job.out / "config.json"));
  }
}

INSTANTIATE_TEST_SUITE_P(Quantize, CastModel, testing::Values("flash-official", "nano"));

TEST(Quantize, Nvfp4SourcesKeepCodesScalesAndInputScales) {
  const TempDir dir;
  const auto in = golden_dir("flash-nvfp4");
  EXPECT_TRUE(quantize_checkpoint(quantize_job(in, dir / "m")).report.total().tally.lossless());
  expect_same_values(dir / "m", in);
  expect_other_tensors_copied(dir / "m", in);
  const TensorStore source = TensorStore::open(in), out = TensorStore::open(dir / "m");
  EXPECT_EQ(source.tensors().size(), out.tensors().size());
  for (const StoredTensor& tensor : source.tensors()) {
    EXPECT_TRUE(to_text(out.find(tensor.info->name)->bytes) == to_text(tensor.bytes))
        << tensor.info->name;
  }
  const auto before = load_checkpoint(in), after = load_checkpoint(dir / "m");
  EXPECT_EQ(before->layers[0].experts.gate_up_input_scales,
            after->layers[0].experts.gate_up_input_scales);
  EXPECT_EQ(read_json(dir / "m/config.json")["quantization_config"]["config_groups"]["group_0"]
                                            ["input_activations"]["dynamic"],
            false);
}

// Scales that are no powers of two: the other layout can only store a near reciprocal.
TEST(Quantize, LayoutWithReciprocalsDiffersInLastBitsAndSaysSo) {
  const TempDir dir;
  QuantizeJob job = quantize_job(golden_dir("flash-nvfp4"), dir / "c");
  job.layout = Nvfp4Layout::kCompressedTensors;
  const QuantizeResult result = quantize_checkpoint(job);
  EXPECT_THAT(result.notes, Contains(HasSubstr("global scales of 18 matrices have no exact one")));
  const auto before = load_checkpoint(job.in), after = load_checkpoint(job.out);
  ASSERT_FALSE(before->layers.empty());
  for (std::size_t i = 0; i < before->layers[0].experts.gate.size(); ++i) {
    const float a = *before->layers[0].experts.gate[i].global_scales;
    const float b = *after->layers[0].experts.gate[i].global_scales;
    EXPECT_NEAR(b / a, 1.0f, 0x1p-23f);
    EXPECT_NEAR(*after->layers[0].experts.down_input_scales[i] /
                    *before->layers[0].experts.down_input_scales[i],
                1.0f, 0x1p-23f);
  }
  // Written out and read in again it stays what it is.
  job.in = dir / "c";
  job.out = dir / "c2";
  quantize_checkpoint(job);
  EXPECT_TRUE(get_file(dir / "c/model.safetensors") == get_file(dir / "c2/model.safetensors"));
}

TEST(Quantize, Bf16IsEncodedAndTheLossReported) {
  const TempDir dir;
  const QuantizeResult result =
      quantize_checkpoint(quantize_job(golden_dir("flash-bf16"), dir / "out"));
  const ErrorTally total = result.report.total().tally;
  EXPECT_FALSE(total.lossless());
  EXPECT_GT(total.relative_error(), 0.01);
  EXPECT_LT(total.relative_error(), 0.2);
  EXPECT_EQ(total.cast_blocks, 0);
  expect_other_tensors_copied(dir / "out", golden_dir("flash-bf16"));
  const nlohmann::json config = read_json(dir / "out/config.json");
  EXPECT_EQ(config["quantization_config"]["quant_method"], "modelopt");
  EXPECT_EQ(config["quantization_config"]["quant_algo"], "NVFP4");
  EXPECT_THAT(result.notes, Contains(HasSubstr("dynamic")));
  const auto weights = load_checkpoint(dir / "out");
  EXPECT_EQ(weights->report.layers.front().expert_formats, "NVFP4");
  EXPECT_EQ(weights->report.layers.front().linear_formats, "BF16");
  // gate and up share their global scale.
  const ExpertWeights& experts = weights->layers[0].experts;
  for (std::size_t i = 0; i < experts.gate.size(); ++i) {
    EXPECT_EQ(*experts.gate[i].global_scales, *experts.up[i].global_scales);
  }
}

// What is encoded from values is encoded for the global scale that the file decodes to.
TEST(Quantize, LayoutWithReciprocalsEncodesForWhatItStores) {
  const TempDir dir;
  QuantizeJob job = quantize_job(golden_dir("flash-bf16"), dir / "c");
  job.layout = Nvfp4Layout::kCompressedTensors;
  const QuantizeResult result = quantize_checkpoint(job);
  EXPECT_THAT(result.notes,
              Not(Contains(HasSubstr("global scales of 18 matrices have no exact one"))));
  // The report's own error is that of the files, to the last bit of an FP64 sum.
  const auto before = load_checkpoint(job.in), after = load_checkpoint(job.out);
  const MatrixView& x = before->layers[1].experts.down[2];
  const MatrixView& y = after->layers[1].experts.down[2];
  std::int64_t exact = 0;
  for (std::int64_t row = 0; row < x.rows; ++row) {
    const std::vector<float> a = decoded_row(x, row), b = decoded_row(y, row);
    for (std::size_t i = 0; i < a.size(); ++i) exact += f32_bits(a[i]) == f32_bits(b[i]);
  }
  job = quantize_job(job.in, dir / "one");
  job.layout = Nvfp4Layout::kCompressedTensors;
  job.modules = {"layers.1.ffn.experts.2.w2"};
  EXPECT_EQ(quantize_checkpoint(job).report.total().tally.exact_values, exact);
}

TEST(Quantize, AllModulesOfNano) {
  const TempDir dir;
  QuantizeJob job = quantize_job(nano_dir(), dir / "out");
  job.modules = {"all"};
  const QuantizeResult result = quantize_checkpoint(job);
  EXPECT_GT(result.report.total(MatrixKind::kAttention).tally.relative_error(), 0);
  const auto weights = load_checkpoint(dir / "out");
  EXPECT_EQ(weights->report.layers.front().linear_formats, "NVFP4");
  EXPECT_EQ(weights->head.format, Format::kNvfp4);
  EXPECT_EQ(weights->report.layers.back().linear_formats, "FP8");  // the draft block
  EXPECT_EQ(weights->embedding.format, Format::kBf16);
  const nlohmann::json config = read_json(dir / "out/config.json");
  EXPECT_EQ(config["quantization_config"]["quant_method"], "fp8");  // of the draft block
  EXPECT_THAT(weights->report.notes, IsEmpty());
}

TEST(Quantize, FilesBesideTheShards) {
  const TempDir dir;
  std::filesystem::create_directories(dir / "in/inference");
  for (const char* name :
       {"config.json", "model.safetensors", "tokenizer.json", "generation_config.json"}) {
    std::filesystem::copy(nano_dir() / name, dir / "in" / name);
  }
  put_file(dir / "in/.gitattributes", "x");
  put_file(dir / "in/old.bin", "x");
  put_file(dir / "in/hf_quant_config.json", "{}");
  put_file(dir / "in/LICENSE", "free");
  std::filesystem::create_symlink("nowhere", dir / "in/tokenizer_config.json");
  const QuantizeResult result = quantize_checkpoint(quantize_job(dir / "in", dir / "out"));
  std::vector<std::string> names;
  for (const auto& [name, content] : files_of(dir / "out")) names.push_back(name);
  EXPECT_THAT(names, testing::ElementsAre("LICENSE", "config.json", "generation_config.json",
                                          "hf_quant_config.json", "model.safetensors",
                                          "quantization_report.json", "tokenizer.json"));
  EXPECT_EQ(get_file(dir / "out/tokenizer.json"), get_file(nano_dir() / "tokenizer.json"));
  EXPECT_NE(get_file(dir / "out/hf_quant_config.json"), "{}");
  EXPECT_THAT(result.notes, Contains("Not copied, being larger than 64 MB or no files that can be "
                                     "read (directories, pipes, links to nothing): \"inference\", "
                                     "\"tokenizer_config.json\"."));
  // The keys that are not about formats stay, in their order.
  using Json = nlohmann::ordered_json;
  Json before = Json::parse(get_file(dir / "in/config.json"));
  Json after = Json::parse(get_file(dir / "out/config.json"));
  before["quantization_config"] = after["quantization_config"] = nullptr;
  EXPECT_EQ(after.dump(), before.dump());
}

TEST(Quantize, ReportNamesFilesAndOptions) {
  const TempDir dir;
  const QuantizeResult result =
      quantize_checkpoint(quantize_job(golden_dir("flash-official"), dir / "out"));
  const nlohmann::json report = read_json(dir / "out" / kReportFileName);
  EXPECT_EQ(report["options"]["layout"], "modelopt");
  EXPECT_EQ(report["options"]["rounding"], "nearest_even");
  ASSERT_EQ(report["files"].size(), 1u);
  EXPECT_EQ(report["files"][0]["bytes"], std::filesystem::file_size(dir / "out/model.safetensors"));
  EXPECT_EQ(report["files"][0]["xxh3_128"], checksum_of_file(dir / "out/model.safetensors"));
  EXPECT_EQ(get_file(dir / "out" / kReportFileName).find(dir.path().string()), std::string::npos);
  EXPECT_EQ(result.output_bytes,
            static_cast<std::int64_t>(std::filesystem::file_size(dir / "out/model.safetensors")));
  EXPECT_EQ(result.source_file_bytes, static_cast<std::int64_t>(std::filesystem::file_size(
                                          golden_dir("flash-official") / "model.safetensors")));
}

// Shards that part an expert's gate from its up, and codes from their scales.
TEST(Quantize, ShardsKeepTheirNamesAndTensors) {
  const TempDir dir;
  write_sharded(golden_dir("flash-official"), dir / "in", 3, 7);
  quantize_checkpoint(quantize_job(dir / "in", dir / "out"));
  expect_same_values(dir / "out", dir / "in");
  const TensorStore before = TensorStore::open(dir / "in"), after = TensorStore::open(dir / "out");
  ASSERT_EQ(after.shard_paths().size(), 3u);
  for (const StoredTensor& tensor : before.tensors()) {
    const auto other = after.find(tensor.info->name);
    if (!other) continue;
    EXPECT_EQ(other->shard, tensor.shard) << tensor.info->name;
  }
  EXPECT_EQ(after.metadata(0), before.metadata(0));
  const nlohmann::json index = read_json(dir / "out" / kIndexFileName);
  EXPECT_EQ(index["metadata"]["total_size"], after.payload_bytes());
  // Nothing is misaligned that needs alignment.
  for (const StoredTensor& tensor : after.tensors()) {
    EXPECT_TRUE(tensor.aligned()) << tensor.info->name;
  }
}

// What the refusals ask for: first for binding, then for the plan.
void give_least_memory(QuantizeJob& job) {
  job.max_memory_bytes = 1;
  for (int refusals = 0; refusals < 3; ++refusals) {
    try {
      quantize_checkpoint(job);
      return;
    } catch (const Error& error) {
      const std::string message = error.what();
      ASSERT_NE(message.find("needs at least "), std::string::npos) << message;
      job.max_memory_bytes = std::stoll(message.substr(message.find("least ") + 6)) << 20;
    }
  }
  FAIL() << "the memory that a refusal asks for is not enough";
}

TEST(Quantize, BytesDependOnNoThreadsMemoryOrDevice) {
  const TempDir dir;
  for (const char* model : {"flash-bf16", "flash-official"}) {
    const auto in = dir / (std::string(model) + "-in");
    write_sharded(golden_dir(model), in, 2, 40);
    const auto out = [&](const char* name) { return dir / (std::string(model) + name); };
    QuantizeJob job = quantize_job(in, out("-one"));
    job.modules = {"all"};
    quantize_checkpoint(job);
    job.out = out("-three");
    job.num_threads = 3;
    quantize_checkpoint(job);
    expect_same_files(job.out, out("-one"));
    job.out = out("-reference");
    job.device = "reference";
    quantize_checkpoint(job);
    expect_same_files(job.out, out("-one"));
    job = quantize_job(in, out("-small"));
    job.modules = {"all"};
    give_least_memory(job);
    expect_same_files(job.out, out("-one"));
  }
}

TEST(Quantize, OptionsDecideTheBytes) {
  const TempDir dir;
  const auto weights_with = [&](const char* name, const EncodingOptions& options) {
    QuantizeJob job = quantize_job(golden_dir("flash-bf16"), dir / name);
    job.encoding = options;
    quantize_checkpoint(job);
    return get_file(job.out / "model.safetensors");
  };
  const std::string plain = weights_with("plain", {});
  EXPECT_NE(weights_with("half", {E2m1Rounding::kHalfStep, false}), plain);
  EXPECT_NE(weights_with("four", {E2m1Rounding::kNearestEven, true}), plain);
}

TEST(Quantize, CalibrationsInputScalesAreWrittenAndReported) {
  const TempDir dir;
  QuantizeJob job = quantize_job(golden_dir("flash-official"), dir / "out");
  const auto source = load_checkpoint(job.in);
  InputScales scales;
  scales.calibration_tokens = 99;
  for (const LayerWeights& layer : source->layers) {
    scales.layers.emplace_back(static_cast<std::size_t>(layer.num_experts),
                               ExpertInputScales{0.25f, 0.5f});
  }
  scales.layers[1][2] = {0.75f, 3.0f};
  job.calibration = CalibrationTask{"a text", [&] { return scales; }};
  for (const Nvfp4Layout layout : {Nvfp4Layout::kModelOpt, Nvfp4Layout::kCompressedTensors}) {
    job.layout = layout;
    job.out = dir / (layout == Nvfp4Layout::kModelOpt ? "m" : "c");
    quantize_checkpoint(job);
    const auto weights = load_checkpoint(job.out);
    EXPECT_EQ(weights->layers[1].experts.gate_up_input_scales[2], 0.75f);
    EXPECT_EQ(weights->layers[1].experts.down_input_scales[2], 3.0f);
    EXPECT_EQ(weights->layers[0].experts.gate_up_input_scales[0], 0.25f);
    EXPECT_EQ(read_json(job.out / kReportFileName)["calibration"]["tokens"], 99);
  }
}

TEST(Quantize, ProgressEndsWithEverything) {
  const TempDir dir;
  QuantizeJob job = quantize_job(golden_dir("flash-official"), dir / "out");
  QuantizeProgress last;
  job.progress = [&](const QuantizeProgress& progress) {
    EXPECT_GE(progress.done, last.done);
    EXPECT_LE(progress.done, progress.total);
    last = progress;
  };
  quantize_checkpoint(job);
  EXPECT_GT(last.total, 0);
  EXPECT_EQ(last.done, last.total);
  EXPECT_EQ(last.resumed, 0);
}

}  // namespace
}  // namespace dsv4
