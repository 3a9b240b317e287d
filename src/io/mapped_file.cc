#include "io/mapped_file.h"

#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

#include "base/check.h"
#include "io/file_descriptor.h"

namespace dsv4 {

MappedFile MappedFile::open(const std::filesystem::path& path) {
  const RegularFile file = open_regular_file(path);
  MappedFile mapped;
  mapped.path_ = path;
  if (file.size_bytes == 0) return mapped;  // mmap refuses a length of 0
  const auto size = static_cast<std::size_t>(file.size_bytes);
  void* address = ::mmap(nullptr, size, PROT_READ, MAP_PRIVATE, file.fd.get(), 0);
  if (address == MAP_FAILED) fail_errno("map", path, errno);
  // Weights in pages of 2 MiB are read up to 1.3 times as fast (docs/kernels/cpu.md). A file that
  // is cached in small pages already, or a system without large ones for files, ignores it.
  (void)::madvise(address, size, MADV_HUGEPAGE);
  mapped.data_ = static_cast<const std::byte*>(address);
  mapped.size_ = size;
  return mapped;
}

MappedFile::MappedFile(MappedFile&& other) noexcept
    : path_(std::move(other.path_)),
      data_(std::exchange(other.data_, nullptr)),
      size_(std::exchange(other.size_, 0)) {}

MappedFile& MappedFile::operator=(MappedFile&& other) noexcept {
  std::swap(path_, other.path_);
  std::swap(data_, other.data_);
  std::swap(size_, other.size_);
  return *this;
}

MappedFile::~MappedFile() {
  if (data_ != nullptr) ::munmap(const_cast<std::byte*>(data_), size_);
}

void MappedFile::will_need(std::span<const std::byte> range) const { advise(range, MADV_WILLNEED); }

// Drops clean file pages only: the mapping is read-only, so nothing can be lost.
void MappedFile::release(std::span<const std::byte> range) const { advise(range, MADV_DONTNEED); }

void MappedFile::advise(std::span<const std::byte> range, int advice) const {
  if (range.empty()) return;
  DSV4_CHECK(range.data() >= data_ && range.size() <= size_ &&
                 static_cast<std::size_t>(range.data() - data_) <= size_ - range.size(),
             "the range is not part of {}", path_.c_str());
  // The system wants a page boundary. Rounding outwards touches neighbours, for whom a hint is
  // harmless; rounding inwards would miss every tensor smaller than a page.
  const auto page = static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
  const auto offset = static_cast<std::size_t>(range.data() - data_);
  const std::size_t start = offset / page * page;
  // A hint that the system declines is no error.
  (void)::madvise(const_cast<std::byte*>(data_) + start, offset + range.size() - start, advice);
}

}  // namespace dsv4
