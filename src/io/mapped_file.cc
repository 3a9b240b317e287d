#include "io/mapped_file.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "base/check.h"
#include "io/file_descriptor.h"

namespace dsv4 {
namespace {

constexpr std::size_t kMappedAlong = std::size_t{2} << 20;

}  // namespace

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
//
// A fault maps neighbours as well, 64 KiB of them or a large page. Who reads and releases a file
// piece by piece would leave behind what the fault of one piece mapped again of the piece before:
// a twentieth of the file, measured with pieces of 100 KB.
void MappedFile::release(std::span<const std::byte> range) const {
  if (range.empty()) return;
  check_part(range);
  const std::size_t before = std::min(kMappedAlong, static_cast<std::size_t>(range.data() - data_));
  advise({range.data() - before, range.size() + before}, MADV_DONTNEED);
}

void MappedFile::check_part(std::span<const std::byte> range) const {
  DSV4_CHECK(range.data() >= data_ && range.size() <= size_ &&
                 static_cast<std::size_t>(range.data() - data_) <= size_ - range.size(),
             "the range is not part of {}", path_.c_str());
}

void MappedFile::advise(std::span<const std::byte> range, int advice) const {
  if (range.empty()) return;
  check_part(range);
  // The system wants a page boundary. Rounding outwards touches neighbours, for whom a hint is
  // harmless; rounding inwards would miss every tensor smaller than a page.
  const auto page = static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
  const auto offset = static_cast<std::size_t>(range.data() - data_);
  const std::size_t start = offset / page * page;
  // A hint that the system declines is no error.
  (void)::madvise(const_cast<std::byte*>(data_) + start, offset + range.size() - start, advice);
}

}  // namespace dsv4
