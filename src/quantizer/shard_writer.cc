#include "quantizer/shard_writer.h"

#include <utility>

namespace dsv4 {
namespace {

// Larger ones are the block scales of a head.
constexpr std::size_t kMaxKeptBytes = std::size_t{8} << 20;

}  // namespace

ShardWriter::ShardWriter(const std::filesystem::path& target,
                         std::vector<TensorDeclaration> tensors, const TensorMetadata& metadata)
    : writer_(target, std::move(tensors), metadata, &checksum_),
      thread_([this] { write_pieces(); }) {}

ShardWriter::~ShardWriter() {
  if (!thread_.joinable()) return;
  {
    const std::lock_guard lock(mutex_);
    closed_ = true;
    if (queue_.size() > 1) queue_.resize(1);  // the one that is being written
  }
  changed_.notify_all();
  thread_.join();
}

void ShardWriter::throw_failure() {
  if (failure_) std::rethrow_exception(failure_);
}

void ShardWriter::append(std::string name, std::vector<std::byte> bytes) {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return failure_ || queue_.size() < kMaxQueued; });
  throw_failure();
  queue_.push_back({std::move(name), std::move(bytes)});
  changed_.notify_all();
}

std::vector<std::byte> ShardWriter::buffer(std::int64_t bytes) {
  std::vector<std::byte> taken;
  {
    const std::lock_guard lock(mutex_);
    if (!free_.empty()) {
      taken = std::move(free_.back());
      free_.pop_back();
    }
  }
  taken.resize(static_cast<std::size_t>(bytes));
  return taken;
}

WrittenShard ShardWriter::finish(const std::function<void()>& before_commit) {
  {
    const std::lock_guard lock(mutex_);
    closed_ = true;
  }
  changed_.notify_all();
  thread_.join();
  throw_failure();
  before_commit();
  const std::int64_t bytes = writer_.bytes_written();
  writer_.finish();
  return {bytes, checksum_.hex()};
}

void ShardWriter::write_pieces() {
  std::unique_lock lock(mutex_);
  for (;;) {
    changed_.wait(lock, [&] { return closed_ || !queue_.empty(); });
    if (queue_.empty()) return;
    Piece& piece = queue_.front();  // stays there while it is written
    lock.unlock();
    std::exception_ptr failure;
    try {
      writer_.append(piece.name, piece.bytes);
    } catch (...) {
      failure = std::current_exception();
    }
    lock.lock();
    if (failure) {
      failure_ = failure;
      queue_.clear();
      changed_.notify_all();
      return;
    }
    const bool is_worth_keeping =
        free_.size() <= kMaxQueued && piece.bytes.capacity() <= kMaxKeptBytes;
    if (is_worth_keeping) free_.push_back(std::move(piece.bytes));
    queue_.pop_front();
    changed_.notify_all();
  }
}

}  // namespace dsv4
