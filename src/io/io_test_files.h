// io_test_files.h: what the tests of io/ share: hand-made safetensors files (also malformed ones)
// and the check of an error's code and text.
#pragma once

#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <system_error>
#include <vector>

#include "dsv4/error.h"
#include "io/temp_dir.h"

namespace dsv4 {

// Without the code under test, so that the two can disagree.
inline std::filesystem::path put_file(const std::filesystem::path& path, std::string_view bytes) {
  std::ofstream out(path, std::ios::binary);
  out.write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
  out.close();
  if (!out) throw std::runtime_error("cannot write " + path.string());
  return path;
}

inline std::string get_file(const std::filesystem::path& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
}

inline std::string u64_le(std::uint64_t value) {
  std::string bytes(8, '\0');
  for (std::size_t i = 0; i < 8; ++i) bytes[i] = static_cast<char>(value >> (8 * i) & 0xff);
  return bytes;
}

// A file with this header, valid or not.
inline std::string raw_safetensors(std::string_view header, std::string_view data) {
  return u64_le(header.size()) + std::string(header) + std::string(data);
}

inline std::string to_text(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

// `call` throws Error with this code and a message that contains every part.
template <class Call>
void expect_error(ErrorCode code, const std::vector<std::string>& parts, Call&& call) {
  try {
    call();
  } catch (const Error& error) {
    const std::string message = error.what();
    EXPECT_EQ(to_string(error.code()), to_string(code)) << message;
    for (const std::string& part : parts) {
      EXPECT_NE(message.find(part), std::string::npos) << "no '" << part << "' in: " << message;
    }
    // A message is for a terminal: short, and no raw control characters from the file.
    EXPECT_LT(message.size(), 2000u) << message;
    for (const char c : message) EXPECT_GE(static_cast<unsigned char>(c), 0x20) << message;
    return;
  }
  ADD_FAILURE() << "no error; expected one with '" << (parts.empty() ? "" : parts[0]) << "'";
}

}  // namespace dsv4
