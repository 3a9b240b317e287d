#include "base/check.h"

#include <atomic>
#include <cstdlib>
#include <string>

namespace dsv4 {
namespace {
std::atomic<CheckHandler> check_handler{nullptr};
}  // namespace

CheckHandler set_check_handler(CheckHandler handler) { return check_handler.exchange(handler); }

void check_failed(std::string_view file, int line, std::string_view condition,
                  std::string_view message) {
  const CheckHandler handler = check_handler.load();
  if (handler != nullptr) {
    handler(fmt::format("{}:{}: check failed: {}{}{}", file, line, condition,
                        message.empty() ? "" : ": ", message));
  }
  std::abort();
}

}  // namespace dsv4
