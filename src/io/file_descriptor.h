// file_descriptor.h: an owned POSIX descriptor and errors that carry the path and errno's text.
// Internal to io/.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string_view>
#include <utility>

namespace dsv4 {

class FileDescriptor {
 public:
  explicit FileDescriptor(int fd) : fd_(fd) {}
  FileDescriptor(FileDescriptor&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  FileDescriptor& operator=(FileDescriptor&&) = delete;
  ~FileDescriptor();

  int get() const { return fd_; }

 private:
  int fd_;
};

struct RegularFile {
  FileDescriptor fd;
  std::int64_t size_bytes;
};

// Opens for reading. Throws Error: kNotFound, kBadRequest (a directory, pipe or device), kIo.
RegularFile open_regular_file(const std::filesystem::path& path);

// Throws Error kNotFound for a missing file or directory, else kIo: "cannot ACTION PATH: reason".
[[noreturn]] void fail_errno(std::string_view action, const std::filesystem::path& path, int error);

}  // namespace dsv4
