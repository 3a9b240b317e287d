// conversation_names.h: how request JSON spells the values of conversation.h's enumerations, for
// reading and printing. Part of the text layer and the programs, not of any interface.
#pragma once

#include <fmt/format.h>

#include <array>
#include <cstddef>
#include <string>
#include <string_view>

#include "base/check.h"
#include "base/error.h"
#include "text/conversation.h"
#include "text/strict_json.h"

namespace dsv4 {

template <class T>
struct Named {
  std::string_view name;
  T value;
};

inline constexpr std::array<Named<Role>, 6> kRoles = {{{"system", Role::kSystem},
                                                       {"developer", Role::kDeveloper},
                                                       {"user", Role::kUser},
                                                       {"assistant", Role::kAssistant},
                                                       {"tool", Role::kTool},
                                                       {"latest_reminder", Role::kLatestReminder}}};

inline constexpr std::array<Named<Task>, 6> kTasks = {{{"action", Task::kAction},
                                                       {"query", Task::kQuery},
                                                       {"authority", Task::kAuthority},
                                                       {"domain", Task::kDomain},
                                                       {"title", Task::kTitle},
                                                       {"read_url", Task::kReadUrl}}};

inline constexpr std::array<Named<ReasoningEffort>, 4> kEfforts = {
    {{"none", ReasoningEffort::kNone},
     {"low", ReasoningEffort::kLow},
     {"high", ReasoningEffort::kHigh},
     {"max", ReasoningEffort::kMax}}};

inline constexpr std::array<Named<EffortTable>, 3> kEffortTables = {
    {{"initial", EffortTable::kInitial},
     {"0731", EffortTable::k0731},
     {"0813", EffortTable::k0731}}};

// Throws Error kBadRequest, beginning with `path`, that lists the known names.
template <class T, std::size_t N>
T value_by_name(const std::array<Named<T>, N>& names, const std::string& name,
                std::string_view path) {
  std::string known;
  for (const Named<T>& candidate : names) {
    if (candidate.name == name) return candidate.value;
    known += fmt::format("{}{}", known.empty() ? "" : ", ", candidate.name);
  }
  fail(ErrorCode::kBadRequest, "{} is {}; it must be one of: {}", path, quote(name), known);
}

// The first name of a value.
template <class T, std::size_t N>
std::string_view name_of(const std::array<Named<T>, N>& names, T value) {
  for (const Named<T>& candidate : names) {
    if (candidate.value == value) return candidate.name;
  }
  DSV4_CHECK(false, "no name for value {}", static_cast<int>(value));
}

}  // namespace dsv4
