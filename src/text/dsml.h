// dsml.h: the pieces of V4's tool-call markup, shared by the encoder and both parsers. Grammar and
// rendering are theirs.
//
//   "\n\n" <DSML tool_calls> "\n" invoke "\n" invoke ... "\n" </DSML tool_calls>
//
// Nothing is escaped in it, so a value that contains a closing piece cannot be told from its end.
#pragma once

#include <string_view>

namespace dsv4 {

// U+FF5C on both sides. A \x escape would swallow the D that follows.
inline constexpr std::string_view kDsmlMark = "\uFF5CDSML\uFF5C";

// Pieces end where a parser must look next: what follows an opener is checked by itself. The two
// newlines belong to the opener, not to the content before it.
inline constexpr std::string_view kToolCallsOpener = "\n\n<\uFF5CDSML\uFF5Ctool_calls";
inline constexpr std::string_view kToolCallsCloser = "</\uFF5CDSML\uFF5Ctool_calls>";
inline constexpr std::string_view kInvokeOpener = "<\uFF5CDSML\uFF5Cinvoke";
inline constexpr std::string_view kInvokeCloser = "</\uFF5CDSML\uFF5Cinvoke";
inline constexpr std::string_view kParameterOpener = "<\uFF5CDSML\uFF5Cparameter";
inline constexpr std::string_view kParameterCloser = "</\uFF5CDSML\uFF5Cparameter";

inline constexpr std::string_view kNameAttribute = " name=\"";
inline constexpr std::string_view kStringParameter = "\" string=\"true\">";
inline constexpr std::string_view kJsonParameter = "\" string=\"false\">";
inline constexpr std::string_view kInvokeHeadEnd = "\">\n";
inline constexpr std::string_view kTagEnd = ">\n";

}  // namespace dsv4
