#include "runtime/model_session.h"

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "base/error.h"

namespace dsv4 {

ModelSession::ModelSession(LoadedModel& model)
    : model_(&model),
      cache_(model.cache()),
      device_logits_(model.backend().allocate(model.config().vocab_size *
                                              static_cast<std::int64_t>(sizeof(float)))) {}

std::int64_t ModelSession::sync(std::span<const TokenId> tokens, const SyncOptions& options) {
  const bool extends =
      tokens.size() >= tokens_.size() && std::equal(tokens_.begin(), tokens_.end(), tokens.begin());
  const auto rest = extends ? tokens.subspan(tokens_.size()) : tokens;
  check_extension(rest, extends ? length() : 0);
  const std::int64_t max_chunk = model_->model().options().max_step_tokens;
  require(options.chunk_tokens >= 0 && options.chunk_tokens <= max_chunk, ErrorCode::kBadRequest,
          "chunk_tokens is {}; it must be between 0 and {}", options.chunk_tokens, max_chunk);
  if (!extends) {
    // `tokens` may be a view of our own.
    const std::vector<TokenId> copy(tokens.begin(), tokens.end());
    clear();
    append(copy, options);
    return static_cast<std::int64_t>(copy.size());
  }
  append(rest, options);
  return static_cast<std::int64_t>(rest.size());
}

void ModelSession::step(TokenId token) {
  const std::span<const TokenId> one(&token, 1);
  check_extension(one, length());
  append(one, {});
}

void ModelSession::clear() {
  cache_.clear();
  tokens_.clear();
  host_logits_.clear();
}

void ModelSession::check_extension(std::span<const TokenId> tokens,
                                   std::int64_t first_position) const {
  const ModelConfig& config = model_->config();
  for (const TokenId id : tokens) {
    require(id >= 0 && id < config.vocab_size, ErrorCode::kBadRequest,
            "token id {} is outside the model's vocabulary, 0 to {}", id, config.vocab_size - 1);
  }
  const std::int64_t end = first_position + static_cast<std::int64_t>(tokens.size());
  require(end <= config.max_positions, ErrorCode::kBadRequest,
          "{} tokens are more than the {} that the model takes; shorten the text", end,
          config.max_positions);
}

void ModelSession::append(std::span<const TokenId> tokens, const SyncOptions& options) {
  const std::int64_t chunk_tokens =
      options.chunk_tokens > 0 ? options.chunk_tokens : model_->model().options().max_step_tokens;
  const auto total = static_cast<std::int64_t>(tokens.size());
  try {
    for (std::int64_t done = 0; done < total;) {
      const std::int64_t count = std::min(chunk_tokens, total - done);
      forward(tokens.subspan(static_cast<std::size_t>(done), static_cast<std::size_t>(count)),
              done + count == total);
      done += count;
      if (options.progress) options.progress(done, total);
    }
  } catch (...) {
    clear();
    throw;
  }
}

void ModelSession::forward(std::span<const TokenId> chunk, bool wants_logits) {
  const auto num_tokens = static_cast<std::int64_t>(chunk.size());
  const StepSequence sequence{
      .cache = &cache_, .first_position = length(), .num_tokens = num_tokens};
  const auto last_row = static_cast<std::int32_t>(num_tokens - 1);
  Model& model = model_->model();
  model.forward(model_->cache(),
                {.token_ids = chunk,
                 .sequences = {&sequence, 1},
                 .logits_rows = {&last_row, wants_logits ? std::size_t{1} : std::size_t{0}}});
  DSV4_CHECK(cache_.length() == length() + num_tokens);
  tokens_.insert(tokens_.end(), chunk.begin(), chunk.end());
  host_logits_.clear();
  if (!wants_logits) return;
  model_->backend().copy_on_device(device_logits_.data(), model.logits().data,
                                   device_logits_.size_bytes());
  model_->backend().synchronize();
}

MatrixView ModelSession::device_logits() const {
  require(!tokens_.empty(), ErrorCode::kBadRequest,
          "an empty session has no logits; give it at least one token");
  return f32_matrix(device_logits_.as<const float>(), 1, model_->config().vocab_size);
}

std::span<const float> ModelSession::logits() const {
  const MatrixView on_device = device_logits();
  if (host_logits_.empty()) {
    host_logits_.resize(static_cast<std::size_t>(on_device.cols));
    model_->backend().copy_to_host(host_logits_.data(), on_device.data,
                                   device_logits_.size_bytes());
    model_->backend().synchronize();
  }
  return host_logits_;
}

}  // namespace dsv4
