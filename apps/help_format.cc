#include "help_format.h"

#include <string>
#include <string_view>

namespace dsv4 {
namespace {

constexpr std::size_t kColumns = 100;

std::string broken_into_lines(std::string text, std::size_t columns) {
  for (std::size_t begin = 0; text.size() - begin > columns;) {
    std::size_t space = text.rfind(' ', begin + columns);
    if (space == std::string::npos || space <= begin) space = text.find(' ', begin + columns);
    if (space == std::string::npos) break;
    text[space] = '\n';
    begin = space + 1;
  }
  return text;
}

class HelpFormatter final : public CLI::Formatter {
 public:
  // "{a,b}" for "TEXT:{a,b}": the list says all.
  std::string make_option_opts(const CLI::Option* option) const override {
    std::string text = CLI::Formatter::make_option_opts(option);
    constexpr std::string_view kText = " TEXT:{";
    const std::size_t at = text.find(kText);
    if (at != std::string::npos) text.replace(at, kText.size(), " {");
    return text;
  }

  std::string make_option_desc(const CLI::Option* option) const override {
    return broken_into_lines(option->get_description(), kColumns - get_column_width());
  }
};

}  // namespace

std::shared_ptr<CLI::FormatterBase> make_help_formatter() {
  return std::make_shared<HelpFormatter>();
}

}  // namespace dsv4
