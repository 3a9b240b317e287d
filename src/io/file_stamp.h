// file_stamp.h: tells whether a file was changed since it was last looked at.
#pragma once

#include <cstdint>
#include <filesystem>

namespace dsv4 {

struct FileStamp {
  std::int64_t size_bytes = 0;
  std::int64_t modified_ns = 0;  // since 1970
  bool operator==(const FileStamp&) const = default;
};

// Follows links. Throws Error: kNotFound, kIo.
FileStamp stamp_of(const std::filesystem::path& path);

}  // namespace dsv4
