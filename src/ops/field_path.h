// field_path.h: the name of a field as a refusal writes it, "ExpertGateUpParams.w[3].rows", put
// together only when it is printed: an op that accepts its params formats nothing.
#pragma once

#include <fmt/format.h>

#include <cstdint>
#include <string_view>

namespace dsv4 {

// A name, a member of another path or one of its elements. Refers to its parent and to its text,
// which must outlive it: made where it is used, and not kept.
class FieldPath {
 public:
  constexpr FieldPath(const char* name) : name_(name) {}  // NOLINT: a literal is a path
  constexpr FieldPath(std::string_view name) : name_(name) {}
  constexpr FieldPath member(std::string_view name) const { return {this, name, -1}; }
  constexpr FieldPath element(std::int64_t idx) const { return {this, {}, idx}; }

 private:
  friend struct fmt::formatter<FieldPath>;
  constexpr FieldPath(const FieldPath* parent, std::string_view name, std::int64_t idx)
      : parent_(parent), name_(name), idx_(idx) {}

  const FieldPath* parent_ = nullptr;
  std::string_view name_;
  std::int64_t idx_ = -1;  // an element of the parent, not a member
};

}  // namespace dsv4

template <>
struct fmt::formatter<dsv4::FieldPath> {
  constexpr auto parse(fmt::format_parse_context& context) { return context.begin(); }
  auto format(const dsv4::FieldPath& path, fmt::format_context& context) const
      -> fmt::format_context::iterator {
    if (path.parent_ == nullptr) return fmt::format_to(context.out(), "{}", path.name_);
    context.advance_to(format(*path.parent_, context));
    if (path.idx_ >= 0) return fmt::format_to(context.out(), "[{}]", path.idx_);
    return fmt::format_to(context.out(), ".{}", path.name_);
  }
};
