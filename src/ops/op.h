// op.h: what every op contract has in common: a context, a cost, and the rule for rows.
//
// A contract is one params struct with device pointers and the op's name in messages (kOpName), and
// three functions beside it:
//   check(params)            throws Error naming the field, its value and the requirement
//   cost(params)             what a perfect kernel would compute and move; bench divides by it
//   Backend::run(params)     (backend.h) checks, then computes on the backend's stream
// Nothing allocates or synchronises inside an op. Inputs and outputs do not overlap unless the
// contract says so. Inactive rows (position or slot -1, or at and past *row_count) are neither read
// nor written. A row's result depends on that row's own inputs only: not on the other rows, their
// number, or how a batch was cut. Each contract states the order of its sums; the order is the same
// for one row and for many.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace dsv4 {

// A queue of the backend's device; work on one is done in order. Null: the backend's default one.
struct DeviceStream {
  void* handle = nullptr;
};

struct OpContext {
  DeviceStream stream;
  std::byte* workspace = nullptr;  // at least Backend::workspace_bytes(params), on the device
  std::int64_t workspace_bytes = 0;
};

// Useful work only: padding and inactive rows known on the host do not count.
struct Cost {
  double flops = 0;  // a multiply-add is two
  std::int64_t bytes_read = 0;
  std::int64_t bytes_written = 0;
};

// Whether a backend can run given params, and if not, why.
struct Support {
  bool ok = true;
  std::string reason;
  explicit operator bool() const { return ok; }
};

}  // namespace dsv4
