// shard_writer.h: writes one shard in a thread of its own, so that the disk and the checksum work
// while the next rows are encoded. What is in it is the caller's (shard_run.h).
#pragma once

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <exception>
#include <filesystem>
#include <functional>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "io/checksum.h"
#include "io/safetensors_writer.h"

namespace dsv4 {

struct WrittenShard {
  std::int64_t bytes = 0;
  std::string checksum;  // of the whole file: Checksum::hex
};

// All calls come from one thread. Destroyed before finish(), or after an error, it leaves nothing
// behind. An error of the writing thread is thrown by the next call.
class ShardWriter {
 public:
  // Pieces that wait to be written; a caller holds one more.
  static constexpr int kMaxQueued = 3;

  // Reserves the whole file. Throws as SafetensorsWriter does.
  ShardWriter(const std::filesystem::path& target, std::vector<TensorDeclaration> tensors,
              const TensorMetadata& metadata);
  ~ShardWriter();
  ShardWriter(const ShardWriter&) = delete;
  ShardWriter& operator=(const ShardWriter&) = delete;

  // Takes the next bytes of tensor `name` (SafetensorsWriter::append). Waits while kMaxQueued
  // pieces are waiting.
  void append(std::string name, std::vector<std::byte> bytes);
  // A buffer of this size, with unspecified content, that was written before, or a new one.
  std::vector<std::byte> buffer(std::int64_t bytes);

  // Waits until all is written, calls `before_commit`, and if that does not throw makes the file
  // appear. Called once, last.
  WrittenShard finish(const std::function<void()>& before_commit);

 private:
  struct Piece {
    std::string name;
    std::vector<std::byte> bytes;
  };
  void write_pieces();
  void throw_failure();

  Checksum checksum_;
  SafetensorsWriter writer_;

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Piece> queue_;  // the first is being written
  std::vector<std::vector<std::byte>> free_;
  bool closed_ = false;
  std::exception_ptr failure_;
  std::thread thread_;
};

}  // namespace dsv4
