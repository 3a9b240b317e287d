// prompt_texts.h: the longer texts that V4 was trained to find in a prompt, byte for byte. Where
// they stand is chat_encode.h's. Escapes keep the source plain ASCII.
#pragma once

#include <string_view>

namespace dsv4 {

// Before the functions that a system or developer turn offers, one JSON a line.
inline constexpr std::string_view kToolsHead =
    "## Tools\n\n"
    "You have access to a set of tools to help answer the user's question. You can invoke tools "
    "by writing a \"<\uFF5CDSML\uFF5Ctool_calls>\" block like the following:\n\n"
    "<\uFF5CDSML\uFF5Ctool_calls>\n"
    "<\uFF5CDSML\uFF5Cinvoke name=\"$TOOL_NAME\">\n"
    "<\uFF5CDSML\uFF5Cparameter name=\"$PARAMETER_NAME\" "
    "string=\"true|false\">$PARAMETER_VALUE</\uFF5CDSML\uFF5Cparameter>\n"
    "...\n"
    "</\uFF5CDSML\uFF5Cinvoke>\n"
    "<\uFF5CDSML\uFF5Cinvoke name=\"$TOOL_NAME2\">\n"
    "...\n"
    "</\uFF5CDSML\uFF5Cinvoke>\n"
    "</\uFF5CDSML\uFF5Ctool_calls>\n\n"
    "String parameters should be specified as is and set `string=\"true\"`. For all other types "
    "(numbers, booleans, arrays, objects), pass the value in JSON format and set "
    "`string=\"false\"`.\n\n"
    "If thinking_mode is enabled (triggered by <think>), you MUST output your complete reasoning "
    "inside <think>...</think> BEFORE any tool calls or final response.\n\n"
    "Otherwise, output directly after </think> with tool calls or final response.\n\n"
    "### Available Tool Schemas\n\n";

// After them.
inline constexpr std::string_view kToolsTail =
    "\n\n"
    "You MUST strictly follow the above defined tool name and parameter schemas to invoke tool "
    "calls.\n";

// Before the JSON schema of the answer.
inline constexpr std::string_view kResponseHead =
    "## Response Format:\n\n"
    "You MUST strictly adhere to the following schema to reply:\n";

// Before the first turn, by effort.
inline constexpr std::string_view kEffortAbsolute =
    "Reasoning Effort: Absolute maximum with no shortcuts permitted.\n"
    "You MUST be very thorough in your thinking and comprehensively decompose the problem to "
    "resolve the root cause, rigorously stress-testing your logic against all potential paths, "
    "edge cases, and adversarial scenarios.\n"
    "Explicitly write out your entire deliberation process, documenting every intermediate step, "
    "considered alternative, and rejected hypothesis to ensure absolutely no assumption is left "
    "unchecked.\n\n";
inline constexpr std::string_view kEffortBeyond =
    "Reasoning Effort: Beyond maximum \u2014 exhaustive, relentless, and uncompromising.\n"
    "You MUST reason with the utmost depth and rigor, leaving absolutely nothing to chance: "
    "exhaustively decompose the problem into its most fundamental components, trace every causal "
    "chain to its root, and resolve the underlying cause rather than any surface symptom.\n"
    "Do not stop reasoning until you have independently verified the solution from multiple "
    "angles and are certain that no assumption remains unchecked and no error remains "
    "undiscovered.\n\n";

}  // namespace dsv4
