// safetensors_writer.h: writes one .safetensors file without holding its data. Which tensors a
// model's file has is checkpoint/.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "io/atomic_file.h"
#include "io/checksum.h"
#include "io/safetensors.h"

namespace dsv4 {

struct TensorDeclaration {
  std::string name;
  DType dtype = DType::kU8;
  Shape shape;
};

// The header is written first, padded with spaces so that the data section starts at a multiple of
// 8; tensors follow in the order declared, without padding (the format has none): a tensor is
// aligned for its dtype if all before it have sizes that are multiples of it. The file appears at
// `target` on finish(); destroyed before that, or after an error, it leaves nothing behind and an
// existing target untouched (atomic_file.h).
class SafetensorsWriter {
 public:
  // `checksum`, if not null, gets every byte of the file, the header included, and outlives this.
  // Throws Error: kBadRequest (a bad, reserved or repeated name; text that is not UTF-8; a size
  // past 2^63 - 1; a header over kMaxSafetensorsHeaderBytes), and those of AtomicFile.
  SafetensorsWriter(const std::filesystem::path& target, std::vector<TensorDeclaration> tensors,
                    const TensorMetadata& metadata = {}, Checksum* checksum = nullptr);

  // Appends bytes to tensor `name`, whole or in pieces; tensors are filled in the order declared
  // (those of size zero need no call). Throws Error: kBadRequest (another tensor is due, too many
  // bytes), kIo.
  void append(std::string_view name, std::span<const std::byte> bytes);

  // All tensors are full: makes the file appear. Throws Error: kBadRequest (bytes are missing,
  // named), kIo.
  void finish();

  // Of the file so far; the whole file once all tensors are full.
  std::int64_t bytes_written() const { return file_.bytes_written(); }

 private:
  void write(std::span<const std::byte> bytes);
  void next();
  std::int64_t size_of(std::size_t i) const;

  std::vector<TensorDeclaration> tensors_;
  AtomicFile file_;
  Checksum* checksum_;
  std::size_t current_ = 0;        // the tensor that is due
  std::int64_t current_left_ = 0;  // its missing bytes
};

// A declared tensor with its data, not owned.
struct TensorData {
  std::string name;
  DType dtype = DType::kU8;
  Shape shape;
  std::span<const std::byte> bytes;  // exactly tensor_bytes(dtype, shape)
};

// The whole file at once.
void write_safetensors(const std::filesystem::path& target, std::span<const TensorData> tensors,
                       const TensorMetadata& metadata = {});

}  // namespace dsv4
