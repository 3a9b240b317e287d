// journal.h: what a quantisation has done so far, in a file beside the shards, so that a killed run
// goes on where it was. When to write and trust it is quantize.cc's.
#pragma once

#include <cstdint>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "io/file_stamp.h"
#include "io/tensor_store.h"
#include "quantizer/error_tally.h"
#include "quantizer/source_measures.h"

namespace dsv4 {

inline constexpr std::string_view kJournalFileName = ".dsv4-quantize.json";

// A file of the source. The checksum is of a part that is quickly read: a shard's header, the whole
// config.json.
struct SourceFile {
  std::string name;
  FileStamp stamp;
  std::string checksum;
  bool operator==(const SourceFile&) const = default;
};

// config.json, the index if there is one, and the shards of `store`, which was opened in `dir`.
// Throws Error: kNotFound, kIo.
std::vector<SourceFile> describe_source(const std::filesystem::path& dir, const TensorStore& store);

// A matrix that was encoded.
struct MatrixResult {
  std::string name;
  ErrorTally tally;
  float global_scale = 1;
};

struct FinishedShard {
  std::string file_name;
  std::int64_t bytes = 0;
  std::string checksum;
  std::vector<MatrixResult> matrices;
};

// The options that decide bytes, as they are called and written: {"--rounding", "half_step"}. Of a
// text its size and checksum are written.
using RunOptions = std::vector<std::pair<std::string, std::string>>;

class Journal {
 public:
  Journal(RunOptions options, std::vector<SourceFile> source);

  // Reads `out`/kJournalFileName; none if there is no such file. Throws Error: kBadRequest
  // (damaged, or of another version of dsv4), kIo.
  static std::optional<Journal> read(const std::filesystem::path& out);
  // Writes it, whole or not at all. Throws Error: kIo.
  void write(const std::filesystem::path& out) const;

  // Throws Error kBadRequest naming the first difference between this run and `now`.
  void require_same(const Journal& now) const;

  const RunOptions& options() const { return options_; }
  void set_measures(SourceMeasures measures);
  const SourceMeasures& measures() const { return measures_; }

  void add(FinishedShard shard);
  // Drops a shard that turned out to be damaged.
  void remove(std::string_view file_name);
  const std::vector<FinishedShard>& finished() const { return finished_; }
  const FinishedShard* find(std::string_view file_name) const;

 private:
  RunOptions options_;
  std::vector<SourceFile> source_;
  SourceMeasures measures_;
  std::vector<FinishedShard> finished_;
  // So that a rewrite only joins them.
  std::string measures_json_ = "{}";
  std::vector<std::string> finished_json_;
};

}  // namespace dsv4
