#include "io/file_stamp.h"

#include <sys/stat.h>

#include <cerrno>

#include "io/file_descriptor.h"

namespace dsv4 {

FileStamp stamp_of(const std::filesystem::path& path) {
  struct stat status {};
  if (::stat(path.c_str(), &status) != 0) fail_errno("look at", path, errno);
  return {
      static_cast<std::int64_t>(status.st_size),
      static_cast<std::int64_t>(status.st_mtim.tv_sec) * 1'000'000'000 + status.st_mtim.tv_nsec};
}

}  // namespace dsv4
