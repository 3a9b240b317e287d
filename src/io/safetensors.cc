#include "io/safetensors.h"

#include "base/check.h"
#include "base/error.h"
#include "io/json_events.h"

namespace dsv4 {
namespace {

constexpr std::int64_t kLengthFieldBytes = 8;

std::uint64_t load_u64_le(std::span<const std::byte> bytes) {
  std::uint64_t value = 0;
  for (int i = kLengthFieldBytes - 1; i >= 0; --i) {
    value = value << 8 | std::to_integer<std::uint64_t>(bytes[static_cast<std::size_t>(i)]);
  }
  return value;
}

// The header's text inside a whole file.
std::string_view header_text(std::span<const std::byte> file, std::string_view where) {
  const auto file_bytes = static_cast<std::int64_t>(file.size());
  require(
      file_bytes >= kLengthFieldBytes, ErrorCode::kBadCheckpoint,
      "{}: the file has {} bytes, too few for a safetensors header (8 and more); it is empty or "
      "its download was cut short",
      where, file_bytes);
  const std::string_view text(reinterpret_cast<const char*>(file.data()), file.size());
  require(!text.starts_with("version https://git-lfs"), ErrorCode::kBadCheckpoint,
          "{}: this is a Git LFS pointer, not the data; fetch it with `git lfs pull`", where);
  const std::uint64_t length = load_u64_le(file);
  require(length <= static_cast<std::uint64_t>(kMaxSafetensorsHeaderBytes),
          ErrorCode::kBadCheckpoint,
          "{}: the header length field says {} bytes, over the limit of {}; this is not a "
          "safetensors file or it is damaged",
          where, length, kMaxSafetensorsHeaderBytes);
  require(static_cast<std::int64_t>(length) <= file_bytes - kLengthFieldBytes,
          ErrorCode::kBadCheckpoint,
          "{}: the header should have {} bytes, but only {} follow; the file is truncated", where,
          length, file_bytes - kLengthFieldBytes);
  return text.substr(kLengthFieldBytes, static_cast<std::size_t>(length));
}

}  // namespace

SafetensorsFile SafetensorsFile::open(const std::filesystem::path& path) {
  SafetensorsFile opened;
  opened.file_ = MappedFile::open(path);
  const std::span<const std::byte> file = opened.file_.bytes();
  const std::string_view text = header_text(file, path.native());
  opened.data_ = file.subspan(static_cast<std::size_t>(kLengthFieldBytes) + text.size());
  opened.header_ =
      parse_safetensors_header(text, static_cast<std::int64_t>(opened.data_.size()), path.native());
  std::vector<std::string_view> names;
  names.reserve(opened.header_.tensors.size());
  for (const TensorInfo& tensor : opened.header_.tensors) names.push_back(tensor.name);
  opened.by_name_ = NameIndex(names);
  return opened;
}

const TensorInfo* SafetensorsFile::find(std::string_view name) const {
  const std::optional<std::int64_t> position = by_name_.find(name);
  return position ? &header_.tensors[static_cast<std::size_t>(*position)] : nullptr;
}

std::span<const std::byte> SafetensorsFile::bytes(const TensorInfo& tensor) const {
  DSV4_CHECK(0 <= tensor.begin && tensor.begin <= tensor.end &&
                 tensor.end <= static_cast<std::int64_t>(data_.size()),
             "tensor {} is not of {}", tensor.name, path().c_str());
  return data_.subspan(static_cast<std::size_t>(tensor.begin),
                       static_cast<std::size_t>(tensor.size_bytes()));
}

}  // namespace dsv4
