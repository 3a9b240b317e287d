// safetensors_header.cc: the header's JSON, field by field, and the rules that it must keep. The
// bytes around it are safetensors.cc.
#include <algorithm>
#include <array>
#include <limits>
#include <utility>

#include "base/error.h"
#include "base/math.h"
#include "io/json_events.h"
#include "io/safetensors.h"

namespace dsv4 {
namespace {

// The enumerators, ascending; dtype_name says "?" past the last.
std::optional<DType> dtype_at(int i) {
  const auto dtype = static_cast<DType>(i);
  return dtype_name(dtype) == "?" ? std::nullopt : std::optional(dtype);
}

std::string all_dtype_names() {
  std::string names;
  for (int i = 0; const auto dtype = dtype_at(i); ++i) {
    names += (i == 0 ? "" : ", ") + std::string(dtype_name(*dtype));
  }
  return names;
}

class HeaderEvents : public JsonEvents {
 public:
  HeaderEvents(std::int64_t data_bytes, std::string_view where)
      : data_bytes_(data_bytes), where_(where) {}

  SafetensorsHeader take() { return std::move(header_); }

  void begin_object() override {
    if (place_ == Place::kStart) {
      place_ = Place::kRoot;
    } else if (place_ == Place::kRoot) {
      place_ = in_metadata_ ? Place::kMetadata : Place::kTensor;
    } else {
      unexpected("an object");
    }
  }

  void key(std::string& name) override {
    if (place_ == Place::kRoot) {
      begin_entry(name);
    } else if (place_ == Place::kMetadata) {
      metadata_key_ = std::move(name);
    } else {
      begin_field(name);
    }
  }

  void end_object() override {
    if (place_ == Place::kTensor) end_tensor();
    place_ = place_ == Place::kRoot ? Place::kStart : Place::kRoot;
  }

  void begin_array() override {
    if (place_ == Place::kTensor && field_ == kShape) {
      place_ = Place::kShape;
    } else if (place_ == Place::kTensor && field_ == kOffsets) {
      place_ = Place::kOffsets;
    } else {
      unexpected("an array");
    }
  }

  void end_array() override {
    if (place_ == Place::kOffsets && num_values_ != 2) {
      refuse("data_offsets has {} numbers; it must have 2", num_values_);
    }
    if (place_ == Place::kShape) {
      tensor_.shape = Shape(std::span<const std::int64_t>(values_.data(), num_values_));
    } else {
      tensor_.begin = values_[0];
      tensor_.end = values_[1];
    }
    place_ = Place::kTensor;
  }

  void string(std::string& value) override {
    if (place_ == Place::kMetadata) {
      const bool added = header_.metadata.emplace(metadata_key_, std::move(value)).second;
      if (!added) refuse("the key {} is there twice", quote_text(metadata_key_));
    } else if (place_ == Place::kTensor && field_ == kDtype) {
      const std::optional<DType> dtype = dtype_from_name(value);
      if (!dtype) {
        fail(ErrorCode::kUnsupported, "{}: {}: dtype {} is not known here; known are {}", where_,
             subject(), quote_text(value), all_dtype_names());
      }
      tensor_.dtype = *dtype;
    } else {
      unexpected("a string");
    }
  }

  void whole_number(std::uint64_t value) override {
    if (place_ != Place::kShape && place_ != Place::kOffsets) unexpected("a number");
    if (value > static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max())) {
      refuse("{} contains {}, past 2^63 - 1", field_name(), value);
    }
    if (place_ == Place::kOffsets && num_values_ == 2) {
      refuse("data_offsets has more than 2 numbers");
    }
    if (num_values_ == values_.size()) {
      fail(ErrorCode::kUnsupported, "{}: {}: the shape has more than {} dimensions", where_,
           subject(), Shape::kMaxRank);
    }
    values_[num_values_++] = static_cast<std::int64_t>(value);
  }

  void other(std::string_view kind) override { unexpected(kind); }

 private:
  enum class Place { kStart, kRoot, kMetadata, kTensor, kShape, kOffsets };
  enum Field : unsigned { kNone = 0, kDtype = 1, kShape = 2, kOffsets = 4 };

  std::string subject() const {
    if (place_ == Place::kStart) return "the header";
    return in_metadata_ ? std::string(kSafetensorsMetadataKey)
                        : "tensor " + quote_text(tensor_.name);
  }

  template <class... Args>
  [[noreturn]] void refuse(fmt::format_string<Args...> format, Args&&... args) const {
    fail(ErrorCode::kBadCheckpoint, "{}: {}: {}", where_, subject(),
         fmt::format(format, std::forward<Args>(args)...));
  }

  std::string_view field_name() const {
    return field_ == kDtype ? "dtype" : field_ == kShape ? "shape" : "data_offsets";
  }

  [[noreturn]] void unexpected(std::string_view kind) const {
    switch (place_) {
      case Place::kStart:
      case Place::kRoot:
        refuse("it is {}; it must be an object", kind);
      case Place::kMetadata:
        refuse("the value of {} is {}; it must be a string", quote_text(metadata_key_), kind);
      case Place::kTensor:
        refuse("{} is {}; it must be {}", field_name(), kind,
               field_ == kDtype ? "a string" : "an array");
      case Place::kShape:
      case Place::kOffsets:
        break;
    }
    refuse("{} contains {}; it may contain whole numbers from 0 only", field_name(), kind);
  }

  void begin_entry(std::string& name) {
    in_metadata_ = name == kSafetensorsMetadataKey;
    if (in_metadata_) {
      if (std::exchange(has_metadata_, true)) refuse("it is there twice");
      return;
    }
    tensor_ = TensorInfo{};
    tensor_.name = std::move(name);
    seen_ = 0;
    const std::string_view fault = tensor_name_fault(tensor_.name);
    if (!fault.empty()) refuse("{}", fault);
  }

  void begin_field(const std::string& name) {
    if (name == "dtype") {
      field_ = kDtype;
    } else if (name == "shape") {
      field_ = kShape;
    } else if (name == "data_offsets") {
      field_ = kOffsets;
    } else {
      refuse("the field {} is unknown; a tensor has dtype, shape and data_offsets",
             quote_text(name));
    }
    if (seen_ & field_) refuse("{} is there twice", field_name());
    seen_ |= field_;
    num_values_ = 0;
  }

  void end_tensor() {
    for (const Field field : {kDtype, kShape, kOffsets}) {
      field_ = field;
      if (!(seen_ & field)) refuse("{} is missing", field_name());
    }
    const TensorInfo& t = tensor_;
    if (t.begin > t.end) refuse("data_offsets [{}, {}] are reversed", t.begin, t.end);
    if (t.end > data_bytes_) {
      refuse(
          "its data end at byte {}, but the data section has {} bytes; the file is truncated or "
          "its header is damaged",
          t.end, data_bytes_);
    }
    const std::optional<std::int64_t> size = tensor_bytes(t.dtype, t.shape);
    if (!size) {
      refuse("the shape {} of {} is larger than 2^63 - 1 bytes", t.shape.to_string(),
             dtype_name(t.dtype));
    }
    if (*size != t.size_bytes()) {
      refuse("data_offsets [{}, {}] are {} bytes, but {} {} needs {}", t.begin, t.end,
             t.size_bytes(), dtype_name(t.dtype), t.shape.to_string(), *size);
    }
    header_.tensors.push_back(std::move(tensor_));
  }

  std::int64_t data_bytes_;
  std::string_view where_;
  SafetensorsHeader header_;

  Place place_ = Place::kStart;
  bool in_metadata_ = false, has_metadata_ = false;
  std::string metadata_key_;
  TensorInfo tensor_;  // being read
  unsigned seen_ = 0;  // its fields so far
  Field field_ = kNone;
  std::array<std::int64_t, Shape::kMaxRank> values_{};
  std::size_t num_values_ = 0;
};

void check_names(const std::vector<TensorInfo>& tensors, std::string_view where) {
  std::vector<std::string_view> names;
  names.reserve(tensors.size());
  for (const TensorInfo& tensor : tensors) names.push_back(tensor.name);
  const auto duplicate = NameIndex(names).duplicate();
  if (duplicate) {
    fail(ErrorCode::kBadCheckpoint, "{}: tensor {} is there twice", where,
         quote_text(names[static_cast<std::size_t>(duplicate->first)]));
  }
}

// `tensors` ascending by (begin, end), each inside the data section: no hole, no overlap.
void check_layout(const std::vector<TensorInfo>& tensors, std::int64_t data_bytes,
                  std::string_view where) {
  std::int64_t covered = 0;
  const TensorInfo* previous = nullptr;
  for (const TensorInfo& tensor : tensors) {
    if (tensor.begin < covered) {
      fail(
          ErrorCode::kBadCheckpoint,
          "{}: tensor {} begins at byte {} of the data section, inside tensor {}, which ends at {}",
          where, quote_text(tensor.name), tensor.begin,
          previous != nullptr ? quote_text(previous->name) : "", covered);
    }
    if (tensor.begin > covered) {
      fail(ErrorCode::kBadCheckpoint,
           "{}: bytes {} to {} of the data section, before tensor {}, belong to no tensor", where,
           covered, tensor.begin, quote_text(tensor.name));
    }
    covered = tensor.end;
    previous = &tensor;
  }
  require(covered == data_bytes, ErrorCode::kBadCheckpoint,
          "{}: bytes {} to {} at the end of the data section belong to no tensor", where, covered,
          data_bytes);
}

}  // namespace

SafetensorsHeader parse_safetensors_header(std::string_view json, std::int64_t data_bytes,
                                           std::string_view where) {
  require(static_cast<std::int64_t>(json.size()) <= kMaxSafetensorsHeaderBytes,
          ErrorCode::kBadCheckpoint, "{}: the header has {} bytes, over the limit of {}", where,
          json.size(), kMaxSafetensorsHeaderBytes);
  require(json.starts_with('{'), ErrorCode::kBadCheckpoint,
          "{}: the header is not a JSON object: it does not start with '{{'", where);
  HeaderEvents events(data_bytes, where);
  parse_json_events(json, where, events);
  SafetensorsHeader header = events.take();
  check_names(header.tensors, where);
  std::stable_sort(header.tensors.begin(), header.tensors.end(),
                   [](const TensorInfo& a, const TensorInfo& b) {
                     return std::pair(a.begin, a.end) < std::pair(b.begin, b.end);
                   });
  check_layout(header.tensors, data_bytes, where);
  return header;
}

std::optional<DType> dtype_from_name(std::string_view name) {
  for (int i = 0; const auto dtype = dtype_at(i); ++i) {
    if (dtype_name(*dtype) == name) return dtype;
  }
  return std::nullopt;
}

// The order of the factors is that of Shape::num_elements: [2^62, 2^62, 0] is refused although its
// product is 0, because that function would overflow on the way.
std::optional<std::int64_t> tensor_bytes(DType dtype, const Shape& shape) {
  std::optional<std::int64_t> size = 1;
  for (const std::int64_t extent : shape.dims()) {
    size = checked_mul(*size, extent);
    if (!size) return std::nullopt;
  }
  return checked_mul(*size, dtype_bytes(dtype));
}

std::string_view tensor_name_fault(std::string_view name) {
  if (name.empty()) return "the name is empty";
  if (name.find('\0') != std::string_view::npos) return "the name contains a NUL";
  if (name == kSafetensorsMetadataKey) return "the name is reserved";
  return {};
}

}  // namespace dsv4
