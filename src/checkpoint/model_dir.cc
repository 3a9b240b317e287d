#include "checkpoint/model_dir.h"

#include <fstream>
#include <string_view>

#include "base/error.h"
#include "io/tensor_store.h"

namespace dsv4 {
namespace {

namespace fs = std::filesystem;

bool is_gguf(const fs::path& path) {
  if (path.extension() == ".gguf") return true;
  constexpr std::string_view kMagic = "GGUF";
  char begin[kMagic.size()] = {};
  std::error_code error;
  if (!fs::is_regular_file(path, error)) return false;
  std::ifstream(path, std::ios::binary).read(begin, sizeof(begin));
  return std::string_view(begin, sizeof(begin)) == kMagic;
}

[[noreturn]] void refuse_gguf(const fs::path& path) {
  fail(ErrorCode::kUnsupported,
       "{}: GGUF is not supported; use the model's safetensors files with their config.json",
       path.string());
}

void refuse_gguf_inside(const fs::path& dir) {
  std::error_code error;
  fs::directory_iterator entries(dir, error);
  require(!error, ErrorCode::kIo, "{}: {}", dir.string(), error.message());
  for (; entries != fs::directory_iterator(); entries.increment(error)) {
    if (error) break;
    if (entries->path().extension() == ".gguf") refuse_gguf(entries->path());
  }
}

}  // namespace

void check_model_dir(const fs::path& dir) {
  require(!dir.empty(), ErrorCode::kBadRequest,
          "the name of the model's directory is empty; give the one that holds its config.json");
  std::error_code error;
  const fs::file_status status = fs::status(dir, error);
  require(status.type() != fs::file_type::not_found, ErrorCode::kNotFound,
          "{}: there is no such directory; give the one that holds the model's config.json",
          dir.string());
  require(status.type() != fs::file_type::none, ErrorCode::kIo, "cannot open {}: {}", dir.string(),
          error.message());
  if (!fs::is_directory(status)) {
    if (is_gguf(dir)) refuse_gguf(dir);
    fail(ErrorCode::kBadRequest, "{}: not a directory; give the directory that holds config.json",
         dir.string());
  }
  if (fs::exists(dir / "config.json", error)) return;
  refuse_gguf_inside(dir);
  fail(ErrorCode::kNotFound,
       "{}: there is no config.json, so it is no model directory; give the one that holds it",
       dir.string());
}

void refuse_gguf_weights(const fs::path& dir) {
  std::error_code error;
  if (fs::exists(dir / kIndexFileName, error) || fs::exists(dir / kSingleFileName, error)) return;
  refuse_gguf_inside(dir);
}

}  // namespace dsv4
