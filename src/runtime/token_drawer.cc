#include "runtime/token_drawer.h"

#include <algorithm>

#include "base/check.h"

namespace dsv4 {
namespace {

std::int64_t row_bytes(const MatrixView& logits) { return data_bytes(logits.format, logits.cols); }

const std::byte* row_data(const MatrixView& logits, std::int64_t row_idx) {
  return static_cast<const std::byte*>(logits.data) + row_idx * row_bytes(logits);
}

}  // namespace

std::vector<DrawnToken> TokenDrawer::draw(const MatrixView& logits,
                                          std::span<RequestRun* const> requests) {
  DSV4_CHECK(logits.rows == std::ssize(requests) && logits.format == Format::kF32 &&
             logits.row_stride == logits.cols);
  std::vector<DrawnToken> drawn(requests.size());
  std::vector<SamplingRow> rows;
  for (std::size_t i = 0; i < requests.size(); ++i) {
    rows.push_back(requests[i]->sampling_row());
    if (requests[i]->wants_logprobs()) {
      drawn[i].model_logits = fetch_row(logits, static_cast<std::int64_t>(i));
    }
  }
  const std::vector<SampledToken> sampled =
      sampler_.sample(with_penalties(logits, requests, drawn), rows);
  for (std::size_t i = 0; i < requests.size(); ++i) {
    drawn[i].token = sampled[i].token;
    if (drawn[i].token < 0 && drawn[i].model_logits.empty()) {
      drawn[i].model_logits = fetch_row(logits, static_cast<std::int64_t>(i));
    }
  }
  return drawn;
}

std::vector<float> TokenDrawer::fetch_row(const MatrixView& logits, std::int64_t row_idx) {
  std::vector<float> row(static_cast<std::size_t>(logits.cols));
  backend_.copy_to_host(row.data(), row_data(logits, row_idx), row_bytes(logits));
  backend_.synchronize();
  return row;
}

MatrixView TokenDrawer::with_penalties(const MatrixView& logits,
                                       std::span<RequestRun* const> requests,
                                       std::span<DrawnToken> drawn) {
  const auto has_penalties = [](const RequestRun* run) { return run->penalties().are_active(); };
  if (std::none_of(requests.begin(), requests.end(), has_penalties)) return logits;

  const std::int64_t bytes = row_bytes(logits);
  if (adjusted_.size_bytes() < logits.rows * bytes) {
    adjusted_ = backend_.allocate(logits.rows * bytes);
  }
  backend_.copy_on_device(adjusted_.data(), logits.data, logits.rows * bytes);
  for (std::int64_t i = 0; i < logits.rows; ++i) {
    const RequestRun& run = *requests[static_cast<std::size_t>(i)];
    if (!has_penalties(&run)) continue;
    const auto& fetched = drawn[static_cast<std::size_t>(i)].model_logits;
    std::vector<float> row = fetched.empty() ? fetch_row(logits, i) : fetched;
    run.penalties().apply(row);
    backend_.copy_to_device(adjusted_.data() + i * bytes, row.data(), bytes);
    backend_.synchronize();
  }
  return f32_matrix(adjusted_.as<const float>(), logits.rows, logits.cols);
}

}  // namespace dsv4
