#include "quantizer/result_files.h"

#include <algorithm>
#include <string_view>
#include <unordered_map>

#include "io/atomic_file.h"
#include "quantizer/counted.h"
#include "quantizer/stored_scale.h"

namespace dsv4 {
namespace {

using Json = nlohmann::ordered_json;

}  // namespace

QuantizationReport make_report(const QuantizePlan& plan, const Journal& journal) {
  std::unordered_map<std::string_view, const ErrorTally*> tallies;
  for (const FinishedShard& shard : journal.finished()) {
    for (const MatrixResult& matrix : shard.matrices) tallies[matrix.name] = &matrix.tally;
  }
  QuantizationReport report;
  for (const PlannedMatrix& planned : plan.matrices) {
    report.add(planned.matrix, *tallies.at(planned.matrix.name));
  }
  return report;
}

std::string reciprocals_note(const QuantizePlan& plan, const Journal& journal) {
  if (plan.layout != Nvfp4Layout::kCompressedTensors) return "";
  std::int64_t inexact = 0;
  for (const FinishedShard& shard : journal.finished()) {
    for (const MatrixResult& matrix : shard.matrices) {
      const float stored = stored_scale(matrix.global_scale, plan.layout, matrix.name);
      inexact += 1.0f / stored != matrix.global_scale;
    }
  }
  if (inexact == 0) return "";
  return fmt::format(
      "This layout stores reciprocals, and the global scales of {} have no exact one: their values "
      "decode with a relative difference of up to 6e-8.",
      counted(inexact, "matrix", "matrices"));
}

void write_index(const QuantizePlan& plan, const std::filesystem::path& out) {
  nlohmann::json map = nlohmann::json::object();
  for (const PlannedShard& shard : plan.shards) {
    for (const PlannedTensor& tensor : shard.tensors) {
      map[tensor.declaration.name] = shard.file_name;
    }
  }
  Json index;
  index["metadata"]["total_size"] = plan.output_bytes();
  std::string text = index.dump();
  text.pop_back();
  write_text_file(out / kIndexFileName, text + ",\"weight_map\":" + map.dump(1) + "}\n");
}

Json report_file_json(const QuantizationReport& report, const Journal& journal,
                      const std::vector<std::string>& notes) {
  Json json = to_json(report);
  for (const auto& [name, value] : journal.options()) json["options"][name.substr(2)] = value;
  std::vector<FinishedShard> shards = journal.finished();
  std::sort(shards.begin(), shards.end(), [](const FinishedShard& a, const FinishedShard& b) {
    return a.file_name < b.file_name;
  });
  json["files"] = Json::array();
  for (const FinishedShard& shard : shards) {
    json["files"].push_back(
        {{"name", shard.file_name}, {"bytes", shard.bytes}, {"xxh3_128", shard.checksum}});
  }
  const auto& input_scales = journal.measures().input_scales;
  if (input_scales) json["calibration"] = to_json(*input_scales);
  json["notes"] = notes;
  return json;
}

}  // namespace dsv4
