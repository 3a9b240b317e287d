// checksum.h: XXH3-128 of bytes as they pass, which tells a whole file from a damaged one. It is no
// defence against someone who means to deceive.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>

struct XXH3_state_s;

namespace dsv4 {

class Checksum {
 public:
  Checksum();  // of no bytes
  Checksum(Checksum&&) noexcept = default;
  Checksum& operator=(Checksum&&) noexcept = default;

  void update(std::span<const std::byte> bytes);
  void update(std::string_view text);
  // Of all bytes so far: 32 hexadecimal digits, as `xxhsum -H128` prints them.
  std::string hex() const;

 private:
  struct Free {
    void operator()(XXH3_state_s* state) const;
  };
  std::unique_ptr<XXH3_state_s, Free> state_;
};

// Reads the whole file; `progress`, if not null, is told the bytes read so far after each piece of
// a few MB, and may throw. Throws Error: kNotFound, kBadRequest (a directory, pipe or device), kIo.
std::string checksum_of_file(const std::filesystem::path& path,
                             const std::function<void(std::int64_t)>& progress = nullptr);

}  // namespace dsv4
