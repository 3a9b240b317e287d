// pattern.h: the regular expressions of a tokenizer.json, written for another engine (Oniguruma),
// in the words of PCRE2. Compiling and matching them is pretokenizer.h's.
#pragma once

#include <string>
#include <string_view>

namespace dsv4 {

// Translates `pattern` for PCRE2 with UTF and UCP. \s and \S are spelled out as Unicode's
// White_Space, because PCRE2's own \s takes U+180E, too. `where` names the pattern in messages.
// Throws Error kUnsupported for anything outside the subset whose meaning the two engines share:
// literals, classes without nesting, \p \P \s \S \d \r \n \t \f \v and escaped punctuation,
// quantifiers, alternatives, plain and (?: groups, (?= and (?! lookahead.
std::string to_pcre2(std::string_view pattern, std::string_view where);

}  // namespace dsv4
