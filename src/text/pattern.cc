// pattern.cc: one pass over the pattern that copies what both engines read alike.
#include "text/pattern.h"

#include "base/error.h"

namespace dsv4 {
namespace {

// Members of a class: White_Space of Unicode, and everything else.
constexpr std::string_view kSpaces =
    "\\t-\\r "
    "\\x{85}\\x{a0}\\x{1680}\\x{2000}-\\x{200a}\\x{2028}\\x{2029}\\x{202f}\\x{205f}\\x{3000}";
constexpr std::string_view kNonSpaces =
    "\\x{0}-\\x{8}\\x{e}-\\x{1f}\\x{21}-\\x{84}\\x{86}-\\x{9f}\\x{a1}-\\x{167f}\\x{1681}-\\x{1fff}"
    "\\x{200b}-\\x{2027}\\x{202a}-\\x{202e}\\x{2030}-\\x{205e}\\x{2060}-\\x{2fff}"
    "\\x{3001}-\\x{10ffff}";

bool is_ascii_punctuation(char c) {
  return (c >= '!' && c <= '/') || (c >= ':' && c <= '@') || (c >= '[' && c <= '`') ||
         (c >= '{' && c <= '~');
}

class Translator {
 public:
  Translator(std::string_view pattern, std::string_view where) : pattern_(pattern), where_(where) {}

  std::string run() {
    while (at_ < pattern_.size()) {
      const char c = pattern_[at_];
      if (c == '\\') {
        copy_escape(/*in_class=*/false);
      } else if (c == '[') {
        copy_class();
      } else if (c == '(') {
        copy_group_opener();
      } else if (c == '{') {
        copy_interval();
      } else if (c == '^' || c == '$') {
        refuse("an anchor");  // of a line there, of the text here
      } else {
        copy(1);
      }
    }
    return std::move(out_);
  }

 private:
  [[noreturn]] void refuse(std::string_view what) const {
    fail(ErrorCode::kUnsupported, "{}: {} at byte {} of the pattern is not supported", where_, what,
         at_);
  }

  char peek(std::size_t ahead) const {
    return at_ + ahead < pattern_.size() ? pattern_[at_ + ahead] : '\0';
  }

  void copy(std::size_t count) {
    out_.append(pattern_.substr(at_, count));
    at_ += count;
  }

  // Returns whether the escape stands for several characters.
  bool copy_escape(bool in_class) {
    const char c = peek(1);
    switch (c) {
      case 's':
      case 'S': {
        const std::string_view members = c == 's' ? kSpaces : kNonSpaces;
        out_ += in_class ? std::string(members) : fmt::format("[{}]", members);
        at_ += 2;
        return true;
      }
      case 'p':
      case 'P': {
        const std::size_t end = pattern_.find('}', at_);
        if (peek(2) != '{' || end == std::string_view::npos) refuse("a property without braces");
        copy(end + 1 - at_);
        return true;
      }
      case 'd':
        copy(2);
        return true;
      case 'r':
      case 'n':
      case 't':
      case 'f':
        copy(2);
        return false;
      case 'v':  // U+000B there, any vertical space in PCRE2
        out_ += "\\x{b}";
        at_ += 2;
        return false;
      default:
        if (!is_ascii_punctuation(c)) refuse(fmt::format("the escape \\{}", printable(c)));
        copy(2);
        return false;
    }
  }

  void copy_class() {
    copy(1);
    if (peek(0) == '^') copy(1);
    if (peek(0) == ']') refuse("a class that begins with ']'");
    bool after_set = false;    // the last member was a set such as \s ...
    bool after_range = false;  // ... or a hyphen that may continue a range
    for (bool first = true; peek(0) != ']'; first = false) {
      if (at_ >= pattern_.size()) refuse("a class without ']'");
      const char c = pattern_[at_];
      if (c == '[') refuse("a class inside a class");
      if (c == '&' && peek(1) == '&') refuse("an intersection of classes");
      if (c == '-' && !first && peek(1) != ']') {
        if (after_set || after_range) refuse("a range of sets");
        after_range = true;
        copy(1);
        continue;
      }
      bool is_set = false;
      if (c == '\\') {
        is_set = copy_escape(/*in_class=*/true);
        if (is_set && after_range) refuse("a range of sets");
      } else {
        copy(1);
      }
      after_set = is_set;
      after_range = false;
    }
    copy(1);
  }

  void copy_group_opener() {
    if (peek(1) == '*') refuse("a verb");
    if (peek(1) != '?') return copy(1);
    const char kind = peek(2);
    if (kind != ':' && kind != '=' && kind != '!') {
      refuse(fmt::format("a group that begins with (?{}", printable(kind)));
    }
    copy(3);
  }

  void copy_interval() {
    if (peek(1) < '0' || peek(1) > '9') refuse("a '{' that opens no {n}, {n,} or {n,m}");
    const std::size_t end = pattern_.find('}', at_);
    if (end == std::string_view::npos) refuse("an interval without '}'");
    copy(end + 1 - at_);
    if (peek(0) == '+') refuse("a '+' after an interval");  // repeats there, possessive here
  }

  static std::string printable(char c) {
    if (c > ' ' && c <= '~') return std::string(1, c);
    return fmt::format("0x{:02X}", static_cast<unsigned char>(c));
  }

  std::string_view pattern_;
  std::string_view where_;
  std::size_t at_ = 0;
  std::string out_;
};

}  // namespace

std::string to_pcre2(std::string_view pattern, std::string_view where) {
  return Translator(pattern, where).run();
}

}  // namespace dsv4
