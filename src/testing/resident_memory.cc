#include "testing/resident_memory.h"

#include <fstream>
#include <sstream>
#include <string>

namespace dsv4 {

std::int64_t peak_resident_bytes() {
  std::ifstream status("/proc/self/status");
  std::string word;
  while (status >> word) {
    std::int64_t kilobytes = 0;
    if (word == "VmHWM:" && status >> kilobytes) return kilobytes * 1024;
  }
  return 0;
}

bool reset_peak_resident() {
  return static_cast<bool>(std::ofstream("/proc/self/clear_refs") << "5");
}

// A mapping is a line with its range, mode and path, then one line a figure: "Rss:    64 kB".
std::optional<std::int64_t> resident_file_bytes(const std::filesystem::path& directory) {
  std::ifstream maps("/proc/self/smaps");
  const std::string prefix = std::filesystem::canonical(directory).native() + "/";
  std::int64_t kilobytes = 0;
  bool is_counted = false, is_told = false;
  for (std::string line; std::getline(maps, line);) {
    std::istringstream words(line);
    std::string first;
    words >> first;
    if (first.find('-') != first.npos) {
      const std::size_t path = line.find('/');
      is_counted = path != line.npos && line.compare(path, prefix.size(), prefix) == 0;
    } else if (std::int64_t rss = 0; first == "Rss:" && words >> rss) {
      is_told = true;
      if (is_counted) kilobytes += rss;
    }
  }
  if (!is_told) return std::nullopt;
  return kilobytes * 1024;
}

}  // namespace dsv4
