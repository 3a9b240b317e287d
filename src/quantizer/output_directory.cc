#include "quantizer/output_directory.h"

#include <fmt/ranges.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <string_view>
#include <system_error>
#include <utility>

#include "base/error.h"
#include "checkpoint/json_fields.h"
#include "io/atomic_file.h"
#include "io/file_descriptor.h"
#include "io/tensor_store.h"

namespace dsv4 {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kNamesShown = 3;

// Weights in formats of any program; they would be of the model before.
constexpr std::array<std::string_view, 6> kWeightEndings{".safetensors", ".bin", ".gguf",
                                                         ".pt",          ".pth", ".index.json"};

std::vector<std::string> names_in(const fs::path& directory) {
  std::vector<std::string> names;
  std::error_code error;
  for (fs::directory_iterator entry(directory, error), end; !error && entry != end;
       entry.increment(error)) {
    names.push_back(entry->path().filename().string());
  }
  require(!error, ErrorCode::kIo, "cannot list {}: {}", directory.string(), error.message());
  std::sort(names.begin(), names.end());
  return names;
}

bool contains(const std::vector<std::string>& names, std::string_view name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

std::string shown(const std::vector<std::string>& names) {
  std::vector<std::string> first;
  for (std::size_t i = 0; i < std::min(kNamesShown, names.size()); ++i) {
    first.push_back(in_quotes(names[i]));
  }
  return fmt::format("{}{}", fmt::join(first, ", "), names.size() > kNamesShown ? ", ..." : "");
}

void check_fresh(const fs::path& out, const std::vector<std::string>& names) {
  require(!contains(names, kJournalFileName), ErrorCode::kBadRequest,
          "{} holds a quantisation that was not finished; go on with --resume, or empty the "
          "directory",
          out.string());
  require(names.empty(), ErrorCode::kBadRequest,
          "{} is not empty (it holds {}); name a new or empty directory", out.string(),
          shown(names));
}

// Without a journal only what a run leaves that was killed before it had one.
void check_resumable(const fs::path& out, std::vector<std::string> names) {
  if (contains(names, kJournalFileName)) return;
  require(!contains(names, kReportFileName) || !contains(names, kConfigFileName),
          ErrorCode::kBadRequest, "{} holds a finished quantisation; there is nothing to resume",
          out.string());
  std::erase_if(names, is_temporary_name);
  require(names.empty(), ErrorCode::kBadRequest,
          "{} holds no quantisation that could go on, but {}; name a new or empty directory",
          out.string(), shown(names));
}

// With links followed as far as the path exists; empty where it cannot be looked at.
fs::path resolved(const fs::path& path) {
  std::error_code error;
  const fs::path result = fs::weakly_canonical(fs::absolute(path, error), error);
  return error ? fs::path() : result;
}

// Whether `inner` is `outer` or lies in it. False where one cannot be looked at: what is done with
// it next says why.
bool is_within(const fs::path& inner, const fs::path& outer) {
  const fs::path a = resolved(inner), b = resolved(outer);
  if (a.empty() || b.empty()) return false;
  return std::mismatch(b.begin(), b.end(), a.begin(), a.end()).first == b.end();
}

// The directories that creating `out` would make, the deepest first.
std::vector<fs::path> missing_directories(const fs::path& out) {
  std::vector<fs::path> missing;
  std::error_code error;
  for (fs::path path = fs::absolute(out, error);
       path.has_relative_path() && !fs::exists(path, error); path = path.parent_path()) {
    missing.push_back(path);
  }
  return missing;
}

std::vector<fs::path> create(const fs::path& in, const fs::path& out, bool resume) {
  OutputDirectory::check(in, out, resume);
  CreatedDirectories created(missing_directories(out));
  std::error_code error;
  fs::create_directories(out, error);
  require(!error, ErrorCode::kIo, "cannot create {}: {}", out.string(), error.message());
  return std::exchange(created.paths, {});
}

bool is_weights(std::string_view name) {
  return std::any_of(kWeightEndings.begin(), kWeightEndings.end(),
                     [&](std::string_view ending) { return name.ends_with(ending); });
}

// What tells of the source's formats would be false beside the result.
bool is_model_card(std::string_view name) { return name == "README.md"; }

bool is_written_anew(std::string_view name) {
  return name == kConfigFileName || name == kHfQuantConfigFileName || name == kReportFileName;
}

// What copy_small_files copies or says that it did not.
std::vector<std::string> names_beside_shards(const fs::path& in) {
  std::vector<std::string> names = names_in(in);
  std::erase_if(names, [](const std::string& name) {
    return name.starts_with('.') || is_weights(name) || is_model_card(name) ||
           is_written_anew(name);
  });
  return names;
}

bool is_small(const fs::path& path) {
  std::error_code error;
  return fs::is_regular_file(path, error) &&
         fs::file_size(path, error) <= std::uintmax_t{kMaxSmallFileBytes};
}

}  // namespace

CreatedDirectories::CreatedDirectories(std::vector<fs::path> paths_) : paths(std::move(paths_)) {}

// rmdir, so that nothing goes that holds something.
CreatedDirectories::~CreatedDirectories() {
  for (const fs::path& path : paths) static_cast<void>(::rmdir(path.c_str()));
}

void OutputDirectory::check(const fs::path& in, const fs::path& out, bool resume) {
  require(!out.empty(), ErrorCode::kBadRequest,
          "the name of the output's directory is empty; name a new or empty one");
  std::error_code error;
  const fs::file_status status = fs::status(out, error);
  const bool is_there = fs::exists(status);
  require(is_there || !fs::is_symlink(fs::symlink_status(out, error)), ErrorCode::kBadRequest,
          "{} is a symbolic link to nothing; remove it, create what it points to, or name another "
          "directory",
          out.string());
  require(!is_there || fs::is_directory(status), ErrorCode::kBadRequest,
          "{}: not a directory; name a new or empty one", out.string());
  require(!fs::equivalent(in, out, error), ErrorCode::kBadRequest,
          "{} is the source itself; name a new or empty directory for the output", out.string());
  require(!is_within(out, in), ErrorCode::kBadRequest,
          "{} lies in the source, which is only read; name a directory outside of it",
          out.string());
  require(!is_within(in, out), ErrorCode::kBadRequest,
          "the source lies in {}; name a new or empty directory for the output", out.string());
  if (!is_there) return;
  std::vector<std::string> names = names_in(out);
  if (resume) {
    check_resumable(out, std::move(names));
  } else {
    check_fresh(out, names);
  }
}

OutputDirectory::OutputDirectory(const fs::path& in, const fs::path& out, bool resume)
    : path_(out), created_(create(in, out, resume)), lock_(path_) {
  check(in, out, resume);  // again: who held the lock may have written
  if (::access(path_.c_str(), W_OK | X_OK) != 0) fail_errno("write to", path_, errno);
  if (!resume) return;
  journal_ = Journal::read(path_);
  remove_abandoned_temporaries(path_);
}

void OutputDirectory::require_there() const {
  require(lock_.is_at(path_), ErrorCode::kIo,
          "{} was removed or replaced while it was written to; begin again", path_.string());
}

void OutputDirectory::require_space(std::int64_t bytes) const {
  std::error_code error;
  const fs::space_info space = fs::space(path_, error);
  if (error) return;  // writing will tell
  require(space.available >= static_cast<std::uintmax_t>(bytes), ErrorCode::kIo,
          "{}: {} bytes are free on this disk, {} are needed; free some, or choose another disk",
          path_.string(), space.available, bytes);
}

void OutputDirectory::remove_journal() const {
  std::error_code error;
  fs::remove(path_ / kJournalFileName, error);
  require(!error, ErrorCode::kIo, "cannot remove {}: {}", (path_ / kJournalFileName).string(),
          error.message());
}

void check_plot(const fs::path& in, const fs::path& out, const fs::path& plot) {
  require(plot.extension() == ".svg", ErrorCode::kBadRequest,
          "--plot {}: the name must end in .svg, so that it cannot be that of a model's file",
          plot.string());
  require(!is_within(plot, in), ErrorCode::kBadRequest,
          "--plot {} lies in the source, which is only read; choose another folder", plot.string());
  std::error_code error;
  const fs::path folder = fs::absolute(plot, error).parent_path();
  if (!fs::is_directory(folder, error)) {
    // OUT itself is made by the run.
    require(resolved(folder) == resolved(out), ErrorCode::kNotFound,
            "--plot {}: there is no directory {}", plot.string(), folder.string());
    return;
  }
  const AtomicFile can_be_written(plot);  // and is not
}

std::vector<std::string> copy_small_files(const fs::path& in, const fs::path& out) {
  std::vector<std::string> left_out;
  for (const std::string& name : names_beside_shards(in)) {
    const fs::path path = in / name;
    if (is_small(path)) {
      write_text_file(out / name, read_text_file(path, kMaxSmallFileBytes));
    } else {
      left_out.push_back(in_quotes(name));
    }
  }
  return left_out;
}

std::int64_t small_file_bytes(const fs::path& in, const fs::path& out) {
  std::int64_t bytes = 0;
  for (const std::string& name : names_beside_shards(in)) {
    std::error_code error;
    if (!is_small(in / name) || fs::exists(out / name, error)) continue;
    bytes += static_cast<std::int64_t>(fs::file_size(in / name, error));
  }
  return bytes;
}

}  // namespace dsv4
