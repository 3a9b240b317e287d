// mapped_file.h: a whole file as read-only memory. What the bytes mean is the reader's business
// (safetensors.h).
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>

namespace dsv4 {

// Owns one mapping; spans into it live as long as the object, also when it is moved. The descriptor
// is closed after mapping, so any number of shards can be open.
//
// Trap: a file that another process truncates while it is mapped raises SIGBUS on access; replace
// model files by rename (atomic_file.h), never in place.
class MappedFile {
 public:
  // Throws Error: kNotFound, kBadRequest (a directory, pipe or device), kIo.
  static MappedFile open(const std::filesystem::path& path);

  MappedFile() = default;
  MappedFile(MappedFile&& other) noexcept;
  MappedFile& operator=(MappedFile&& other) noexcept;
  ~MappedFile();

  // Empty for an empty file. The address is page-aligned.
  std::span<const std::byte> bytes() const { return {data_, size_}; }
  const std::filesystem::path& path() const { return path_; }

  // Hints; both accept any range of bytes() and do nothing on an empty one.
  // will_need starts reading the range ahead. release drops its pages from this process, and those
  // shortly before it: reading them again is allowed and costs a page fault. A loader that copies a
  // tensor calls release afterwards, so that file and copy are not resident together.
  void will_need(std::span<const std::byte> range) const;
  void release(std::span<const std::byte> range) const;

 private:
  void check_part(std::span<const std::byte> range) const;
  void advise(std::span<const std::byte> range, int advice) const;

  std::filesystem::path path_;
  const std::byte* data_ = nullptr;
  std::size_t size_ = 0;
};

}  // namespace dsv4
