#include "io/safetensors_writer.h"

#include <nlohmann/json.hpp>
#include <optional>
#include <utility>

#include "base/error.h"
#include "base/math.h"
#include "io/json_events.h"
#include "io/name_index.h"

namespace dsv4 {
namespace {

constexpr std::int64_t kDataAlignment = 8;

struct EncodedHeader {
  std::string text;  // with the length field and the padding
  std::int64_t data_bytes;
};

std::string json_string(std::string_view text, const std::filesystem::path& target) {
  try {
    return nlohmann::json(std::string(text)).dump();
  } catch (const nlohmann::json::exception&) {
    fail(ErrorCode::kBadRequest, "cannot write {}: {} is not UTF-8", target.c_str(),
         quote_text(text));
  }
}

std::int64_t checked_tensor_bytes(const TensorDeclaration& tensor,
                                  const std::filesystem::path& target) {
  const std::optional<std::int64_t> size = tensor_bytes(tensor.dtype, tensor.shape);
  if (!size) {
    fail(ErrorCode::kBadRequest,
         "cannot write {}: tensor {}: {} {} is no shape, or is larger than 2^63 - 1 bytes",
         target.c_str(), quote_text(tensor.name), dtype_name(tensor.dtype),
         tensor.shape.to_string());
  }
  return *size;
}

void check_names(const std::vector<TensorDeclaration>& tensors,
                 const std::filesystem::path& target) {
  std::vector<std::string_view> names;
  names.reserve(tensors.size());
  for (const TensorDeclaration& tensor : tensors) {
    const std::string_view fault = tensor_name_fault(tensor.name);
    if (!fault.empty()) {
      fail(ErrorCode::kBadRequest, "cannot write {}: tensor {}: {}", target.c_str(),
           quote_text(tensor.name), fault);
    }
    names.push_back(tensor.name);
  }
  if (const auto duplicate = NameIndex(names).duplicate()) {
    fail(ErrorCode::kBadRequest, "cannot write {}: tensor {} is declared twice", target.c_str(),
         quote_text(names[static_cast<std::size_t>(duplicate->first)]));
  }
}

void append_entry(std::string& json, std::string_view entry) {
  json += json.size() > 1 ? "," : "";
  json += entry;
}

// The tensors' object and its size; nothing of the file's framing.
std::pair<std::string, std::int64_t> header_json(const std::vector<TensorDeclaration>& tensors,
                                                 const TensorMetadata& metadata,
                                                 const std::filesystem::path& target) {
  std::string json = "{";
  if (!metadata.empty()) {
    std::string object = "{";
    for (const auto& [key, value] : metadata) {
      append_entry(object, json_string(key, target) + ":" + json_string(value, target));
    }
    append_entry(json, fmt::format("\"{}\":{}}}", kSafetensorsMetadataKey, object));
  }
  std::int64_t offset = 0;
  for (const TensorDeclaration& tensor : tensors) {
    const std::optional<std::int64_t> end =
        checked_add(offset, checked_tensor_bytes(tensor, target));
    if (!end) {
      fail(ErrorCode::kBadRequest, "cannot write {}: tensor {} ends past 2^63 - 1 bytes",
           target.c_str(), quote_text(tensor.name));
    }
    append_entry(json, fmt::format(R"({}:{{"dtype":"{}","shape":{},"data_offsets":[{},{}]}})",
                                   json_string(tensor.name, target), dtype_name(tensor.dtype),
                                   tensor.shape.to_string(), offset, *end));
    offset = *end;
  }
  return {json + "}", offset};
}

EncodedHeader encode_header(const std::vector<TensorDeclaration>& tensors,
                            const TensorMetadata& metadata, const std::filesystem::path& target) {
  check_names(tensors, target);
  auto [json, data_bytes] = header_json(tensors, metadata, target);
  json.resize(
      static_cast<std::size_t>(round_up(static_cast<std::int64_t>(json.size()), kDataAlignment)),
      ' ');
  const auto json_bytes = static_cast<std::int64_t>(json.size());
  require(json_bytes <= kMaxSafetensorsHeaderBytes, ErrorCode::kBadRequest,
          "cannot write {}: its header would have {} bytes, over the limit of {}; spread the "
          "tensors over more files",
          target.c_str(), json_bytes, kMaxSafetensorsHeaderBytes);
  std::string length(sizeof(std::uint64_t), '\0');
  for (std::size_t i = 0; i < length.size(); ++i) {
    length[i] = static_cast<char>(json_bytes >> (8 * i) & 0xff);
  }
  return {length + json, data_bytes};
}

}  // namespace

SafetensorsWriter::SafetensorsWriter(const std::filesystem::path& target,
                                     std::vector<TensorDeclaration> tensors,
                                     const TensorMetadata& metadata, Checksum* checksum)
    : tensors_(std::move(tensors)), file_(target), checksum_(checksum) {
  const EncodedHeader header = encode_header(tensors_, metadata, target);
  const auto header_bytes = static_cast<std::int64_t>(header.text.size());
  const std::optional<std::int64_t> file_bytes = checked_add(header_bytes, header.data_bytes);
  require(file_bytes.has_value(), ErrorCode::kBadRequest,
          "cannot write {}: the file would be larger than 2^63 - 1 bytes", target.c_str());
  file_.reserve(*file_bytes);
  write(std::as_bytes(std::span(header.text)));
  if (!tensors_.empty()) current_left_ = size_of(0);
}

void SafetensorsWriter::append(std::string_view name, std::span<const std::byte> bytes) {
  while (current_ < tensors_.size() && current_left_ == 0 && tensors_[current_].name != name)
    next();
  if (current_ == tensors_.size() || tensors_[current_].name != name) {
    fail(ErrorCode::kBadRequest, "{}: bytes for tensor {} came, but {} is due",
         file_.target().c_str(), quote_text(name),
         current_ < tensors_.size() ? "tensor " + quote_text(tensors_[current_].name)
                                    : std::string("none"));
  }
  const auto num_bytes = static_cast<std::int64_t>(bytes.size());
  if (num_bytes > current_left_) {
    fail(ErrorCode::kBadRequest,
         "{}: {} bytes for tensor {} came, but only {} of its {} are missing",
         file_.target().c_str(), num_bytes, quote_text(name), current_left_, size_of(current_));
  }
  write(bytes);
  current_left_ -= num_bytes;
}

void SafetensorsWriter::write(std::span<const std::byte> bytes) {
  file_.write(bytes);
  if (checksum_ != nullptr) checksum_->update(bytes);
}

void SafetensorsWriter::finish() {
  while (current_ < tensors_.size() && current_left_ == 0) next();
  if (current_ < tensors_.size()) {
    fail(ErrorCode::kBadRequest, "{}: tensor {} lacks {} of its {} bytes", file_.target().c_str(),
         quote_text(tensors_[current_].name), current_left_, size_of(current_));
  }
  file_.commit();
}

void SafetensorsWriter::next() {
  ++current_;
  current_left_ = current_ < tensors_.size() ? size_of(current_) : 0;
}

// The constructor has checked that it fits.
std::int64_t SafetensorsWriter::size_of(std::size_t i) const {
  return *tensor_bytes(tensors_[i].dtype, tensors_[i].shape);
}

void write_safetensors(const std::filesystem::path& target, std::span<const TensorData> tensors,
                       const TensorMetadata& metadata) {
  std::vector<TensorDeclaration> declarations;
  declarations.reserve(tensors.size());
  for (const TensorData& tensor : tensors) {
    declarations.push_back({tensor.name, tensor.dtype, tensor.shape});
  }
  SafetensorsWriter writer(target, std::move(declarations), metadata);
  for (const TensorData& tensor : tensors) writer.append(tensor.name, tensor.bytes);
  writer.finish();
}

}  // namespace dsv4
