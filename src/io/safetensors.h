// safetensors.h: reads and checks one .safetensors file. Several files that make one model are
// tensor_store.h; what a tensor's name means is checkpoint/.
//
// Format (https://github.com/huggingface/safetensors, README "Format"): u64 little-endian header
// length N, N bytes of JSON, then the data section. Each tensor has dtype, shape and
// data_offsets [begin, end) counted from the start of the data section, which the tensors cover
// without hole or overlap.
//
// Nothing aligns the data section: a tensor may start at any address. Read it with memcpy, or look
// at StoredTensor::aligned() (tensor_store.h) and copy what is not.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "io/mapped_file.h"
#include "io/name_index.h"
#include "tensor/dtype.h"
#include "tensor/shape.h"

namespace dsv4 {

// The limit of the safetensors library; a longer header is refused unread.
inline constexpr std::int64_t kMaxSafetensorsHeaderBytes = 100'000'000;

// The header key that is not a tensor.
inline constexpr std::string_view kSafetensorsMetadataKey = "__metadata__";

struct TensorInfo {
  std::string name;
  DType dtype = DType::kU8;
  Shape shape;
  // Bytes from the start of the data section; end - begin is what dtype and shape ask for.
  std::int64_t begin = 0, end = 0;

  std::int64_t size_bytes() const { return end - begin; }
};

using TensorMetadata = std::map<std::string, std::string>;

struct SafetensorsHeader {
  std::vector<TensorInfo> tensors;  // ascending by (begin, end), else in the header's order
  TensorMetadata metadata;          // empty if the header has none
};

// Parses and checks the text of a header for a data section of `data_bytes` bytes. `where` names
// the file in messages. Time is n log n; memory is a small multiple of the text; nesting is
// bounded. Throws Error: kBadCheckpoint, kUnsupported (a dtype or a number of dimensions that we
// lack).
SafetensorsHeader parse_safetensors_header(std::string_view json, std::int64_t data_bytes,
                                           std::string_view where);

// The dtype that safetensors calls `name`.
std::optional<DType> dtype_from_name(std::string_view name);
// Bytes of a tensor; empty when an extent is negative or the size is past 2^63 - 1.
std::optional<std::int64_t> tensor_bytes(DType dtype, const Shape& shape);
// Why a tensor cannot be called `name` ("the name is empty", ...); empty if it can.
std::string_view tensor_name_fault(std::string_view name);

// An open file. Movable; infos and bytes stay valid when it is moved, until it is destroyed.
class SafetensorsFile {
 public:
  // Reads and checks the whole header; touches no tensor data.
  // Throws Error: kNotFound, kBadRequest, kIo, kBadCheckpoint, kUnsupported.
  static SafetensorsFile open(const std::filesystem::path& path);

  // In the order of the data section.
  std::span<const TensorInfo> tensors() const { return header_.tensors; }
  const TensorInfo* find(std::string_view name) const;  // null if there is none
  // The data of a tensor of this file. Possibly unaligned, see above.
  std::span<const std::byte> bytes(const TensorInfo& tensor) const;
  const TensorMetadata& metadata() const { return header_.metadata; }
  const std::filesystem::path& path() const { return file_.path(); }
  // For the hints will_need and release.
  const MappedFile& mapping() const { return file_; }

 private:
  MappedFile file_;
  SafetensorsHeader header_;
  std::span<const std::byte> data_;
  NameIndex by_name_;
};

}  // namespace dsv4
