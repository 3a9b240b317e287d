// atomic_file.h: files that appear whole or not at all, and reading a small text file whole.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>

namespace dsv4 {

// Writes to a hidden temporary in the target's directory; commit() makes it durable and renames it
// onto the target. Destroyed before that, it removes the temporary and leaves the target as it was.
// A killed process may leave `.NAME.tmp-PID-N`, which nothing reads. The new file has the
// permissions of the one that it replaces. A target that is a symbolic link is itself replaced.
// Not thread-safe.
class AtomicFile {
 public:
  // Throws Error: kNotFound (no such directory), kBadRequest (the target is a directory, pipe
  // or device), kIo.
  explicit AtomicFile(const std::filesystem::path& target);
  AtomicFile(AtomicFile&& other) noexcept;
  AtomicFile& operator=(AtomicFile&&) = delete;
  ~AtomicFile();

  // Reserves disk space for a file of `bytes`, so that a full disk shows before hours of work and
  // not after; does nothing where the file system cannot. Throws Error: kIo.
  void reserve(std::int64_t bytes);

  // Append. Throws Error: kIo, naming the target, the bytes written and the reason.
  void write(std::span<const std::byte> bytes);
  void write(std::string_view text);
  std::int64_t bytes_written() const { return bytes_written_; }

  // fsync, rename, fsync of the directory. Called once, last. Throws Error: kIo.
  void commit();

  const std::filesystem::path& target() const { return target_; }

 private:
  void require_open() const;
  void discard() noexcept;

  std::filesystem::path target_, temporary_;
  int fd_ = -1;
  std::int64_t bytes_written_ = 0;
};

// The whole file in one step: for JSON and other small text.
void write_text_file(const std::filesystem::path& target, std::string_view text);

// Whether an AtomicFile of a process that was killed may have left a file of this name.
bool is_temporary_name(std::string_view name);

// Removes the temporaries that killed processes left in `directory`, in which nobody may be writing
// now. Returns how many there were. Throws Error: kNotFound, kIo.
int remove_abandoned_temporaries(const std::filesystem::path& directory);

// The whole file; may be empty, may hold any bytes. A file longer than `max_bytes` is refused
// before it is read. Throws Error: kNotFound, kBadRequest (a directory, pipe or device; too long),
// kIo.
std::string read_text_file(const std::filesystem::path& path, std::int64_t max_bytes);

}  // namespace dsv4
