#include "io/atomic_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <system_error>
#include <utility>
#include <vector>

#include "base/error.h"
#include "io/file_descriptor.h"

namespace dsv4 {
namespace {

std::filesystem::path directory_of(const std::filesystem::path& target) {
  return target.has_parent_path() ? target.parent_path() : std::filesystem::path(".");
}

// Makes the rename itself durable. Some file systems cannot sync a directory and say EINVAL.
void sync_directory(const std::filesystem::path& directory) {
  const FileDescriptor fd(::open(directory.c_str(), O_RDONLY | O_CLOEXEC | O_DIRECTORY));
  if (fd.get() < 0) fail_errno("open", directory, errno);
  if (::fsync(fd.get()) != 0 && errno != EINVAL) fail_errno("sync", directory, errno);
}

constexpr std::string_view kTemporaryMark = ".tmp-";

bool is_number(std::string_view text) {
  return !text.empty() &&
         std::all_of(text.begin(), text.end(), [](char c) { return c >= '0' && c <= '9'; });
}

}  // namespace

AtomicFile::AtomicFile(const std::filesystem::path& target) : target_(target) {
  require(target.has_filename() && target.native().find('\0') == std::string::npos,
          ErrorCode::kBadRequest, "cannot write \"{}\": it does not end in a file name",
          target.c_str());
  std::error_code ignored;  // a target that cannot be looked at fails at open below
  const std::filesystem::file_status old = std::filesystem::status(target, ignored);
  require(!std::filesystem::is_directory(old), ErrorCode::kBadRequest,
          "cannot write {}: it is a directory", target.c_str());
  // The rename would put a file in the place of the pipe or device: as root, of /dev/null.
  require(!std::filesystem::exists(old) || std::filesystem::is_regular_file(old),
          ErrorCode::kBadRequest, "cannot write {}: it is a pipe or device, not a file",
          target.c_str());
  // Names of killed processes may be in the way; a thousand of them mean something else is wrong.
  for (int attempt = 0; attempt < 1000; ++attempt) {
    temporary_ = directory_of(target) / fmt::format(".{}{}{}-{}", target.filename().string(),
                                                    kTemporaryMark, ::getpid(), attempt);
    fd_ = ::open(temporary_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    if (fd_ >= 0 || errno != EEXIST) break;
  }
  if (fd_ < 0) fail_errno("create a file beside", target, errno);
  // What only its owner could read stays so. Best effort: some file systems know no modes.
  if (std::filesystem::exists(old)) {
    static_cast<void>(::fchmod(fd_, static_cast<mode_t>(old.permissions()) & 0777));
  }
}

AtomicFile::AtomicFile(AtomicFile&& other) noexcept
    : target_(std::move(other.target_)),
      temporary_(std::move(other.temporary_)),
      fd_(std::exchange(other.fd_, -1)),
      bytes_written_(other.bytes_written_) {}

AtomicFile::~AtomicFile() { discard(); }

void AtomicFile::discard() noexcept {
  if (fd_ < 0) return;
  ::close(std::exchange(fd_, -1));
  ::unlink(temporary_.c_str());
}

void AtomicFile::require_open() const {
  require(fd_ >= 0, ErrorCode::kBadRequest,
          "{}: the file is already finished, or abandoned after an error", target_.c_str());
}

void AtomicFile::reserve(std::int64_t bytes) {
  require_open();
  if (bytes <= bytes_written_) return;
  int result = 0;
  do {
    result = ::fallocate(fd_, FALLOC_FL_KEEP_SIZE, 0, bytes);
  } while (result != 0 && errno == EINTR);
  if (result == 0 || errno == EOPNOTSUPP || errno == ENOSYS) return;
  const int error = errno;
  discard();
  fail(ErrorCode::kIo, "cannot reserve {} bytes for {}: {}", bytes, target_.c_str(),
       std::generic_category().message(error));
}

void AtomicFile::write(std::span<const std::byte> bytes) {
  require_open();
  while (!bytes.empty()) {
    // Linux writes at most 2^31 - 4096 bytes a call.
    const ssize_t n = ::write(fd_, bytes.data(), std::min<std::size_t>(bytes.size(), 1u << 30));
    if (n < 0) {
      if (errno == EINTR) continue;
      const int error = errno;
      discard();
      fail(ErrorCode::kIo, "cannot write {}: {} after {} bytes", target_.c_str(),
           std::generic_category().message(error), bytes_written_);
    }
    bytes = bytes.subspan(static_cast<std::size_t>(n));
    bytes_written_ += n;
  }
}

void AtomicFile::write(std::string_view text) { write(std::as_bytes(std::span(text))); }

void AtomicFile::commit() {
  require_open();
  if (::fsync(fd_) != 0) {
    const int error = errno;
    discard();
    fail_errno("write", target_, error);
  }
  if (::rename(temporary_.c_str(), target_.c_str()) != 0) {
    const int error = errno;
    discard();
    fail_errno("replace", target_, error);
  }
  ::close(std::exchange(fd_, -1));  // after fsync there is nothing left that could fail
  sync_directory(directory_of(target_));
}

void write_text_file(const std::filesystem::path& target, std::string_view text) {
  AtomicFile file(target);
  file.write(text);
  file.commit();
}

bool is_temporary_name(std::string_view name) {
  const std::size_t mark = name.rfind(kTemporaryMark);
  if (!name.starts_with('.') || mark == name.npos || mark < 2) return false;
  const std::string_view numbers = name.substr(mark + kTemporaryMark.size());
  const std::size_t dash = numbers.find('-');
  return dash != numbers.npos && is_number(numbers.substr(0, dash)) &&
         is_number(numbers.substr(dash + 1));
}

int remove_abandoned_temporaries(const std::filesystem::path& directory) {
  std::error_code error;
  std::vector<std::filesystem::path> found;
  for (std::filesystem::directory_iterator entry(directory, error), end; !error && entry != end;
       entry.increment(error)) {
    if (is_temporary_name(entry->path().filename().native())) found.push_back(entry->path());
  }
  if (error) fail_errno("list", directory, error.value());
  for (const std::filesystem::path& path : found) {
    if (::unlink(path.c_str()) != 0 && errno != ENOENT) fail_errno("remove", path, errno);
  }
  return static_cast<int>(found.size());
}

std::string read_text_file(const std::filesystem::path& path, std::int64_t max_bytes) {
  const RegularFile file = open_regular_file(path);
  std::string text;
  // The size is a first guess only: the file may grow, and files of /proc say 0.
  std::int64_t room = std::min(file.size_bytes, max_bytes) + 1;
  for (;;) {
    const auto used = static_cast<std::int64_t>(text.size());
    require(used <= max_bytes && file.size_bytes <= max_bytes, ErrorCode::kBadRequest,
            "{} is {} bytes long; at most {} are read", path.c_str(),
            std::max(used, file.size_bytes), max_bytes);
    text.resize(static_cast<std::size_t>(used + room));
    const ssize_t n = ::read(file.fd.get(), text.data() + used, static_cast<std::size_t>(room));
    const int error = errno;
    text.resize(static_cast<std::size_t>(used + std::max<ssize_t>(n, 0)));
    if (n < 0 && error != EINTR) fail_errno("read", path, error);
    if (n == 0) return text;
    room = std::min<std::int64_t>(std::max<std::int64_t>(max_bytes + 1 - (used + n), 1), 1 << 16);
  }
}

}  // namespace dsv4
