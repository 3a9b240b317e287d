#include "io/file_descriptor.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <system_error>

#include "base/error.h"

namespace dsv4 {

FileDescriptor::~FileDescriptor() {
  if (fd_ >= 0) ::close(fd_);
}

RegularFile open_regular_file(const std::filesystem::path& path) {
  // A NUL would cut the name short for the system and open another file than the message names.
  require(path.native().find('\0') == std::string::npos, ErrorCode::kBadRequest,
          "{}: a path cannot contain a NUL", path.c_str());
  // O_NONBLOCK: opening a pipe without a writer must not hang; regular files ignore it.
  FileDescriptor fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (fd.get() < 0) fail_errno("open", path, errno);
  struct stat status {};
  if (::fstat(fd.get(), &status) != 0) fail_errno("read the size of", path, errno);
  require(!S_ISDIR(status.st_mode), ErrorCode::kBadRequest, "{} is a directory, not a file",
          path.c_str());
  require(S_ISREG(status.st_mode), ErrorCode::kBadRequest,
          "{} is not a regular file; pipes and devices cannot be read here", path.c_str());
  return {std::move(fd), static_cast<std::int64_t>(status.st_size)};
}

void fail_errno(std::string_view action, const std::filesystem::path& path, int error) {
  const ErrorCode code =
      error == ENOENT || error == ENOTDIR ? ErrorCode::kNotFound : ErrorCode::kIo;
  fail(code, "cannot {} {}: {}", action, path.c_str(), std::generic_category().message(error));
}

}  // namespace dsv4
