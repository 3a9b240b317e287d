// files.h: files that a benchmark makes for its run.
#pragma once

#include <filesystem>

namespace dsv4::bench {

// An empty path of this process's own, removed with all that is in it.
class TemporaryDirectory {
 public:
  TemporaryDirectory();
  ~TemporaryDirectory();
  TemporaryDirectory(const TemporaryDirectory&) = delete;
  TemporaryDirectory& operator=(const TemporaryDirectory&) = delete;
  const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
};

// Writes it out and drops it from the page cache, so that it is read as a file is that nobody has
// used yet: one just written lies in small pages.
void forget_file(const std::filesystem::path& path);

}  // namespace dsv4::bench
