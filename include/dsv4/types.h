// types.h: the plain value types that every part of the API shares; no behaviour, no ownership.
#pragma once

#include <cstdint>
#include <functional>

namespace dsv4 {

// A vocabulary id. Signed, so that -1 can mean "none"; valid ids are 0 .. vocabulary size - 1.
using TokenId = std::int32_t;

// How far a checkpoint is opened: its files first, then its tensors, each checked and bound.
struct LoadProgress {
  enum class Stage { kFiles, kTensors };
  Stage stage = Stage::kFiles;
  std::int64_t done = 0, total = 0;  // files or tensors; done == total ends the stage
};
// Called in the thread that loads. What it throws ends the loading and reaches the caller.
using LoadProgressCallback = std::function<void(const LoadProgress&)>;

}  // namespace dsv4
