// safetensors_header.cc: fuzzes a .safetensors file: the length field, the header, and what a
// header says of a data section of any length.
#include <sys/mman.h>
#include <unistd.h>

#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "fuzz.h"
#include "io/safetensors.h"

namespace dsv4::fuzz {
namespace {

// A file in memory, since the reader maps files.
class MemoryFile {
 public:
  explicit MemoryFile(std::string_view content) : descriptor_(::memfd_create("fuzz", MFD_CLOEXEC)) {
    FUZZ_CHECK(descriptor_ >= 0);
    while (!content.empty()) {
      const ssize_t written = ::write(descriptor_, content.data(), content.size());
      FUZZ_CHECK(written > 0);
      content.remove_prefix(static_cast<std::size_t>(written));
    }
  }
  MemoryFile(const MemoryFile&) = delete;
  ~MemoryFile() { ::close(descriptor_); }
  std::string path() const { return "/proc/self/fd/" + std::to_string(descriptor_); }

 private:
  int descriptor_;
};

// The tensors cover the data section in order, and each has the bytes that it asks for.
void check_tensors(std::span<const TensorInfo> tensors, std::int64_t data_bytes) {
  std::int64_t covered = 0;
  for (const TensorInfo& tensor : tensors) {
    FUZZ_CHECK(tensor_name_fault(tensor.name).empty());
    FUZZ_CHECK(tensor.begin == covered && tensor.end >= tensor.begin);
    FUZZ_CHECK(tensor_bytes(tensor.dtype, tensor.shape) == tensor.size_bytes());
    covered = tensor.end;
  }
  FUZZ_CHECK(covered == data_bytes);
}

void open_file(std::string_view content) {
  const MemoryFile memory(content);
  const SafetensorsFile file = SafetensorsFile::open(memory.path());
  std::int64_t data_bytes = 0;
  for (const TensorInfo& tensor : file.tensors()) {
    FUZZ_CHECK(file.find(tensor.name) == &tensor);
    const std::span<const std::byte> bytes = file.bytes(tensor);
    FUZZ_CHECK(static_cast<std::int64_t>(bytes.size()) == tensor.size_bytes());
    data_bytes += static_cast<std::int64_t>(std::vector(bytes.begin(), bytes.end()).size());
  }
  check_tensors(file.tensors(), data_bytes);
}

void parse_header(std::string_view header, std::int64_t data_bytes) {
  accepted([&] {
    check_tensors(parse_safetensors_header(header, data_bytes, "fuzz").tensors, data_bytes);
  });
}

}  // namespace
}  // namespace dsv4::fuzz

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace dsv4::fuzz;
  const std::string_view content = as_text(data, size);
  accepted([&] { open_file(content); });
  // The text behind the length field, for sections larger than any file we could make.
  if (size < 8) return 0;
  const std::string_view header = content.substr(8);
  parse_header(header, 0);
  parse_header(header, std::int64_t{1} << 32);
  parse_header(header, std::numeric_limits<std::int64_t>::max());
  return 0;
}
