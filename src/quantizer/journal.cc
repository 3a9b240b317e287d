#include "quantizer/journal.h"

#include <algorithm>

#include "base/error.h"
#include "checkpoint/json_fields.h"
#include "io/atomic_file.h"
#include "io/checksum.h"

namespace dsv4 {
namespace {

using Json = nlohmann::ordered_json;
namespace fs = std::filesystem;

// Raised when a journal of before would be read wrongly, or its shards differ from today's.
constexpr int kVersion = 2;
// Pro has 70,000 matrices of 500 bytes.
constexpr std::int64_t kMaxJournalBytes = 1'000'000'000;

// Of what the header says.
std::string header_checksum(const fs::path& path, const TensorStore& store, int shard) {
  Checksum checksum;
  checksum.update(path.filename().native());
  for (const StoredTensor& tensor : store.tensors()) {
    if (tensor.shard != shard) continue;
    checksum.update(fmt::format("{} {} {} {}\n", tensor.info->name, dtype_name(tensor.info->dtype),
                                tensor.info->shape.to_string(), tensor.info->begin));
  }
  return checksum.hex();
}

Json to_json(const SourceFile& file) {
  return {{"name", file.name},
          {"bytes", file.stamp.size_bytes},
          {"modified_ns", file.stamp.modified_ns},
          {"checksum", file.checksum}};
}

std::string to_text(const FinishedShard& shard) {
  Json matrices = Json::array();
  for (const MatrixResult& matrix : shard.matrices) {
    matrices.push_back({{"name", matrix.name},
                        {"global_scale", static_cast<double>(matrix.global_scale)},
                        {"tally", to_json(matrix.tally)}});
  }
  const Json json = {{"name", shard.file_name},
                     {"bytes", shard.bytes},
                     {"checksum", shard.checksum},
                     {"matrices", std::move(matrices)}};
  return json.dump();
}

FinishedShard finished_shard(const nlohmann::json& json) {
  FinishedShard shard;
  shard.file_name = json.at("name").get<std::string>();
  shard.bytes = json.at("bytes").get<std::int64_t>();
  shard.checksum = json.at("checksum").get<std::string>();
  for (const nlohmann::json& matrix : json.at("matrices")) {
    shard.matrices.push_back({matrix.at("name").get<std::string>(),
                              error_tally_from_json(matrix.at("tally")),
                              matrix.at("global_scale").get<float>()});
  }
  return shard;
}

Journal parse(const std::string& text) {
  const nlohmann::json json = nlohmann::json::parse(text);
  require(json.at("version").get<int>() == kVersion, ErrorCode::kBadRequest,
          "it was written by another version of dsv4");
  RunOptions options;
  for (const nlohmann::json& option : json.at("options")) {
    options.emplace_back(option.at(0).get<std::string>(), option.at(1).get<std::string>());
  }
  std::vector<SourceFile> source;
  for (const nlohmann::json& file : json.at("source")) {
    source.push_back(
        {file.at("name").get<std::string>(),
         {file.at("bytes").get<std::int64_t>(), file.at("modified_ns").get<std::int64_t>()},
         file.at("checksum").get<std::string>()});
  }
  Journal journal(std::move(options), std::move(source));
  journal.set_measures(source_measures_from_json(json.at("measures")));
  for (const nlohmann::json& shard : json.at("finished")) journal.add(finished_shard(shard));
  return journal;
}

}  // namespace

std::vector<SourceFile> describe_source(const fs::path& dir, const TensorStore& store) {
  std::vector<SourceFile> files;
  const auto add_whole = [&](std::string_view name) {
    files.push_back({std::string(name), stamp_of(dir / name), checksum_of_file(dir / name)});
  };
  add_whole("config.json");
  std::error_code error;
  if (fs::exists(dir / kIndexFileName, error)) add_whole(kIndexFileName);
  const auto paths = store.shard_paths();
  for (std::size_t i = 0; i < paths.size(); ++i) {
    files.push_back({paths[i].filename().string(), stamp_of(paths[i]),
                     header_checksum(paths[i], store, static_cast<int>(i))});
  }
  return files;
}

Journal::Journal(RunOptions options, std::vector<SourceFile> source)
    : options_(std::move(options)), source_(std::move(source)) {}

std::optional<Journal> Journal::read(const fs::path& out) {
  const fs::path path = out / kJournalFileName;
  std::error_code error;
  if (!fs::exists(path, error)) return std::nullopt;
  const std::string text = read_text_file(path, kMaxJournalBytes);
  const auto refuse = [&](std::string_view why) {
    fail(ErrorCode::kBadRequest,
         "{}: the journal of the run cannot be used ({}); empty {} and begin again", path.string(),
         why, out.string());
  };
  try {
    return parse(text);
  } catch (const nlohmann::json::exception&) {
    refuse("it is damaged");
  } catch (const Error& e) {
    refuse(e.what());
  }
  return std::nullopt;
}

void Journal::write(const fs::path& out) const {
  Json options = Json::array(), source = Json::array();
  for (const auto& [name, value] : options_) options.push_back(Json::array({name, value}));
  for (const SourceFile& file : source_) source.push_back(to_json(file));
  AtomicFile file(out / kJournalFileName);
  file.write(fmt::format(
      "{{\"version\":{},\n\"options\":{},\n\"source\":{},\n\"measures\":{},\n\"finished\":[",
      kVersion, options.dump(), source.dump(), measures_json_));
  for (std::size_t i = 0; i < finished_json_.size(); ++i) {
    file.write(i == 0 ? "\n" : ",\n");
    file.write(finished_json_[i]);
  }
  file.write("]}\n");
  file.commit();
}

void Journal::require_same(const Journal& now) const {
  for (const RunOptions::value_type& option : now.options_) {
    const auto old = std::find_if(options_.begin(), options_.end(),
                                  [&](const auto& other) { return other.first == option.first; });
    require(old != options_.end() && old->second == option.second, ErrorCode::kBadRequest,
            "the run to resume had {} {}, this one has {}; give the same, or begin again in an "
            "empty directory",
            option.first, old == options_.end() ? "no" : in_quotes(old->second),
            in_quotes(option.second));
  }
  for (const SourceFile& file : now.source_) {
    const auto old = std::find_if(source_.begin(), source_.end(),
                                  [&](const SourceFile& other) { return other.name == file.name; });
    require(old != source_.end() && *old == file, ErrorCode::kBadRequest,
            "the source's {} is not what it was when the run began; begin again in an empty "
            "directory",
            in_quotes(file.name));
  }
  require(source_.size() == now.source_.size() && options_.size() == now.options_.size(),
          ErrorCode::kBadRequest,
          "the source has other files than when the run began; begin again in an empty directory");
}

void Journal::set_measures(SourceMeasures measures) {
  measures_json_ = to_json(measures).dump();
  measures_ = std::move(measures);
}

void Journal::add(FinishedShard shard) {
  finished_json_.push_back(to_text(shard));
  finished_.push_back(std::move(shard));
}

void Journal::remove(std::string_view file_name) {
  for (std::size_t i = 0; i < finished_.size(); ++i) {
    if (finished_[i].file_name != file_name) continue;
    finished_.erase(finished_.begin() + static_cast<std::ptrdiff_t>(i));
    finished_json_.erase(finished_json_.begin() + static_cast<std::ptrdiff_t>(i));
    return;
  }
}

const FinishedShard* Journal::find(std::string_view file_name) const {
  for (const FinishedShard& shard : finished_) {
    if (shard.file_name == file_name) return &shard;
  }
  return nullptr;
}

}  // namespace dsv4
