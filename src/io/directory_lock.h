// directory_lock.h: keeps two processes from writing into one directory.
#pragma once

#include <filesystem>

#include "io/file_descriptor.h"

namespace dsv4 {

// Held until it is destroyed or the process ends, however it ends; leaves no file behind. Advisory:
// it excludes other DirectoryLocks only. Where the file system knows no locks there is none.
class DirectoryLock {
 public:
  // Throws Error: kBadRequest (another process holds it, or another lock of this one), kNotFound,
  // kIo.
  explicit DirectoryLock(const std::filesystem::path& directory);

  // Whether `path` leads to the directory that was locked, and not to nothing or to another one
  // that has taken its name since.
  bool is_at(const std::filesystem::path& path) const;

 private:
  FileDescriptor fd_;
};

}  // namespace dsv4
