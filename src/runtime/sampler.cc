#include "runtime/sampler.h"

#include <fmt/format.h>

#include "base/check.h"

namespace dsv4 {

std::string bad_logits_message(std::int64_t position) {
  return fmt::format(
      "the logits for position {} are not numbers; the weights are damaged, or do not suit the "
      "chosen formats",
      position);
}

std::vector<SampledToken> Sampler::sample(const MatrixView& logits,
                                          std::span<const SamplingRow> rows) {
  DSV4_CHECK(static_cast<std::int64_t>(rows.size()) == logits.rows,
             "{} rows of options, {} of logits", rows.size(), logits.rows);
  for (const SamplingRow& row : rows) check(row);
  std::vector<SampledToken> sampled(rows.size());
  if (rows.empty()) return sampled;

  // One allocation: rows first, they have the largest alignment.
  const auto num_rows = logits.rows;
  const auto row_bytes = static_cast<std::int64_t>(rows.size_bytes());
  const std::int64_t token_bytes = num_rows * static_cast<std::int64_t>(sizeof(std::int32_t));
  const std::int64_t logprob_bytes = num_rows * static_cast<std::int64_t>(sizeof(float));
  const std::int64_t all_bytes = row_bytes + token_bytes + logprob_bytes;
  if (arrays_.size_bytes() < all_bytes) arrays_ = backend_.allocate(all_bytes);
  std::byte* const device_tokens = arrays_.data() + row_bytes;
  std::byte* const device_logprobs = device_tokens + token_bytes;
  const SamplingParams params{.logits = logits,
                              .rows = arrays_.as<const SamplingRow>(),
                              .tokens = reinterpret_cast<std::int32_t*>(device_tokens),
                              .logprobs = reinterpret_cast<float*>(device_logprobs)};
  const std::int64_t workspace_bytes = backend_.workspace_bytes(params);
  if (workspace_.size_bytes() < workspace_bytes) workspace_ = backend_.allocate(workspace_bytes);

  std::vector<std::int32_t> tokens(rows.size());
  std::vector<float> logprobs(rows.size());
  backend_.copy_to_device(arrays_.data(), rows.data(), row_bytes);
  backend_.run(params,
               {.workspace = workspace_.data(), .workspace_bytes = workspace_.size_bytes()});
  backend_.copy_to_host(tokens.data(), device_tokens, token_bytes);
  backend_.copy_to_host(logprobs.data(), device_logprobs, logprob_bytes);
  backend_.synchronize();
  for (std::size_t i = 0; i < rows.size(); ++i) sampled[i] = {tokens[i], logprobs[i]};
  return sampled;
}

SampledToken Sampler::sample(const MatrixView& logits, const SamplingRow& row) {
  return sample(logits, std::span<const SamplingRow>(&row, 1)).front();
}

}  // namespace dsv4
