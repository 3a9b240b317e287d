// strict_json.h: JSON from files we do not trust, as a nlohmann value. What the value must look
// like is the caller's.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

namespace dsv4 {

// Throws Error kBadCheckpoint, beginning with `where`: for text that is no JSON (or no UTF-8), for
// an object that gives a key twice (the later value would win silently), for nesting past 32
// levels.
nlohmann::json parse_strict_json(std::string_view text, std::string_view where);

// What nlohmann found wrong with `text`, for a message: "line 2, column 7: syntax error while ...",
// of a single line "column 7: ...", with columns in bytes; at most 200 bytes of it.
std::string json_problem(std::string_view text, const nlohmann::json::exception& error);

// `text` in quotes for a message: control characters and all but the first 60 bytes replaced.
std::string quote(std::string_view text);

}  // namespace dsv4
