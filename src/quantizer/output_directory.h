// output_directory.h: the directory that a quantised checkpoint is written into: who may write
// there, what may be there already, and the small files that a model has beside its shards.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "io/directory_lock.h"
#include "quantizer/journal.h"

namespace dsv4 {

// Removes them when it is destroyed, those that are empty.
struct CreatedDirectories {
  explicit CreatedDirectories(std::vector<std::filesystem::path> paths);
  ~CreatedDirectories();
  CreatedDirectories(const CreatedDirectories&) = delete;
  CreatedDirectories& operator=(const CreatedDirectories&) = delete;

  std::vector<std::filesystem::path> paths;  // the deepest first
};

class OutputDirectory {
 public:
  // What is refused before anything is read or created: `out` is `in`, lies in it or holds it, also
  // through links, or is no directory; or it holds something, and `resume` is not set; or `resume`
  // is set and it holds something but no journal. Throws Error: kBadRequest.
  static void check(const std::filesystem::path& in, const std::filesystem::path& out, bool resume);

  // Checks, creates the directory, locks it, sees that it can be written to, and with `resume`
  // reads the journal and removes the temporaries of a killed run. Throws Error: kBadRequest (also:
  // another run writes there), kIo.
  // When it is destroyed, what it created and is still empty goes.
  OutputDirectory(const std::filesystem::path& in, const std::filesystem::path& out, bool resume);

  const std::filesystem::path& path() const { return path_; }
  // None when the run begins here.
  const std::optional<Journal>& journal() const { return journal_; }
  // Throws Error kIo when the file system has less than this left.
  void require_space(std::int64_t bytes) const;
  // Throws Error kIo when the directory was removed or another one has its name: what was written
  // is not where it should be.
  void require_there() const;
  // After the last file.
  void remove_journal() const;

 private:
  std::filesystem::path path_;
  CreatedDirectories created_;
  DirectoryLock lock_;
  std::optional<Journal> journal_;
};

// A plot may take no file's place of either model, and needs a place that can be written to.
// Throws Error: kBadRequest, kNotFound, kIo.
void check_plot(const std::filesystem::path& in, const std::filesystem::path& out,
                const std::filesystem::path& plot);

// Copies what else a model directory has into `out`: plain files at its top, tokenizer and
// generation_config.json among them, up to kMaxSmallFileBytes each. Left out are weights of any
// kind, hidden files, the model card README.md, and what a quantisation writes itself. Returns the
// names, in quotes, that were left out though they are none of these: larger files, directories,
// pipes, links to nothing. Throws Error: kIo.
std::vector<std::string> copy_small_files(const std::filesystem::path& in,
                                          const std::filesystem::path& out);

// Bytes of the files that copy_small_files would write and that `out` does not have yet.
std::int64_t small_file_bytes(const std::filesystem::path& in, const std::filesystem::path& out);

inline constexpr std::int64_t kMaxSmallFileBytes = 64'000'000;
inline constexpr std::string_view kReportFileName = "quantization_report.json";
inline constexpr std::string_view kConfigFileName = "config.json";
inline constexpr std::string_view kHfQuantConfigFileName = "hf_quant_config.json";

}  // namespace dsv4
