// devices_command.cc: dsv4 devices: where this build can compute on this machine, and what is
// missing where it cannot.
#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <nlohmann/json.hpp>

#include "backends/backends.h"
#include "commands.h"
#include "console.h"

namespace dsv4 {
namespace {

void print_devices(bool json) {
  const std::vector<DeviceReport> reports = device_reports();
  if (json) {
    nlohmann::ordered_json devices = nlohmann::ordered_json::array();
    for (const DeviceReport& report : reports) {
      devices.push_back(
          {{"name", report.name}, {"usable", report.usable}, {"description", report.text}});
    }
    write_stdout(nlohmann::ordered_json{{"devices", devices}}.dump() + "\n");
    return;
  }
  std::size_t width = 0;
  for (const DeviceReport& report : reports) width = std::max(width, report.name.size());
  for (const DeviceReport& report : reports) {
    write_stdout(fmt::format("{:<{}}  {}{}\n", report.name, width,
                             report.usable ? "" : "not usable: ", report.text));
  }
}

}  // namespace

void add_devices_command(CLI::App& app) {
  CLI::App* const command = app.add_subcommand(
      "devices", "where this build computes on this machine, or what is missing");
  const auto json = std::make_shared<bool>(false);
  command->add_flag("--json", *json, "one JSON object");
  command->footer(
      "Examples:\n"
      "  dsv4 devices\n"
      "  DSV4_CUDA_SYNC=1 dsv4 ...   each CUDA kernel is waited for, so that an error names it");
  command->callback([json] { print_devices(*json); });
}

}  // namespace dsv4
