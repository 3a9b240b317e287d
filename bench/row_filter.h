// row_filter.h: which rows of the table a run of dsv4_bench is to measure.
#pragma once

#include <algorithm>
#include <string>
#include <vector>

namespace dsv4::bench {

struct RowFilter {
  std::vector<std::string> ops;  // of these; none: of all. "ceilings" names no rows
  std::string text;              // with this in their "op shape format M=m"

  bool only_ceilings() const { return ops == std::vector<std::string>{"ceilings"}; }
  bool wants(const std::string& op, const std::string& name) const {
    return (ops.empty() || std::find(ops.begin(), ops.end(), op) != ops.end()) &&
           name.find(text) != std::string::npos;
  }
};

}  // namespace dsv4::bench
