#include "io/directory_lock.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>

#include <cerrno>

#include "base/error.h"

namespace dsv4 {
namespace {

FileDescriptor lock(const std::filesystem::path& directory) {
  FileDescriptor fd(::open(directory.c_str(), O_RDONLY | O_CLOEXEC | O_DIRECTORY));
  if (fd.get() < 0) fail_errno("open", directory, errno);
  int result = 0;
  do {
    result = ::flock(fd.get(), LOCK_EX | LOCK_NB);
  } while (result != 0 && errno == EINTR);
  require(result == 0 || errno != EWOULDBLOCK, ErrorCode::kBadRequest,
          "another process is writing to {}; wait until it is done or stop it", directory.c_str());
  return fd;
}

}  // namespace

DirectoryLock::DirectoryLock(const std::filesystem::path& directory) : fd_(lock(directory)) {}

bool DirectoryLock::is_at(const std::filesystem::path& path) const {
  struct stat locked {
  }, there{};
  return ::fstat(fd_.get(), &locked) == 0 && ::stat(path.c_str(), &there) == 0 &&
         locked.st_dev == there.st_dev && locked.st_ino == there.st_ino;
}

}  // namespace dsv4
