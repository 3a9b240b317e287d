#include "model/step_plan.h"

#include <algorithm>
#include <cstring>

#include "base/math.h"
#include "kv/flush.h"

namespace dsv4 {
namespace {

constexpr std::int64_t kArrayAlignment = 16;

}  // namespace

template <class T>
std::int64_t StepArrays::append(std::span<const T> values) {
  const auto offset = round_up(static_cast<std::int64_t>(staging_.size()), kArrayAlignment);
  staging_.resize(static_cast<std::size_t>(offset) + values.size_bytes());
  if (!values.empty()) std::memcpy(staging_.data() + offset, values.data(), values.size_bytes());
  return offset;
}

template <class T>
const T* StepArrays::at(std::int64_t offset) const {
  return reinterpret_cast<const T*>(memory_.data() + offset);
}

StepPlan StepArrays::build(const CacheSchema& schema, std::span<const std::int32_t> token_ids,
                           std::span<const StepSequence> sequences,
                           std::span<const std::int32_t> logits_rows) {
  StepPlan plan;
  plan.num_tokens = static_cast<std::int64_t>(token_ids.size());
  plan.num_sequences = static_cast<int>(sequences.size());
  plan.num_logits = static_cast<std::int64_t>(logits_rows.size());
  staging_.clear();

  std::vector<std::int32_t> positions;
  std::vector<std::int32_t> sequence_of_token;
  std::vector<std::int32_t> token_offsets = {0};
  std::vector<std::int32_t> state_idx;
  std::vector<std::int64_t> slots(token_ids.size());
  const std::span<std::int64_t> all_slots(slots);
  for (const StepSequence& sequence : sequences) {
    const auto begin = static_cast<std::size_t>(token_offsets.back());
    const auto count = static_cast<std::size_t>(sequence.num_tokens);
    DSV4_CHECK(begin + count <= token_ids.size());
    for (std::int64_t i = 0; i < sequence.num_tokens; ++i) {
      positions.push_back(static_cast<std::int32_t>(sequence.first_position + i));
      sequence_of_token.push_back(static_cast<std::int32_t>(state_idx.size()));
    }
    ring_slots(*sequence.cache, schema.ring_rows, sequence.first_position,
               all_slots.subspan(begin, count));
    state_idx.push_back(sequence.cache->state_idx());
    token_offsets.push_back(static_cast<std::int32_t>(begin + count));
  }
  DSV4_CHECK(token_offsets.back() == plan.num_tokens);

  const std::int64_t token_ids_at = append(token_ids);
  const std::int64_t positions_at = append(std::span<const std::int32_t>(positions));
  const std::int64_t sequences_at = append(std::span<const std::int32_t>(sequence_of_token));
  const std::int64_t offsets_at = append(std::span<const std::int32_t>(token_offsets));
  const std::int64_t state_idx_at = append(std::span<const std::int32_t>(state_idx));
  const std::int64_t ring_slots_at = append(std::span<const std::int64_t>(slots));
  const std::int64_t logits_rows_at = append(logits_rows);
  const std::int32_t all_tokens[] = {0, static_cast<std::int32_t>(plan.num_tokens)};
  const std::int64_t all_tokens_at = append(std::span<const std::int32_t>(all_tokens));

  struct RatioOffsets {
    std::int64_t slots, row_positions, pages;
  };
  std::map<int, RatioOffsets> ratio_offsets;
  std::vector<std::int32_t> row_positions(token_ids.size());
  for (const int ratio : schema.compress_ratios()) {
    StepPlan::Ratio& part = plan.ratios[ratio];
    for (const StepSequence& sequence : sequences) {
      part.pages_stride = std::max(
          part.pages_stride, static_cast<std::int64_t>(sequence.cache->page_table(ratio).size()));
      part.max_visible_rows =
          std::max(part.max_visible_rows, (sequence.first_position + sequence.num_tokens) / ratio);
    }
    std::vector<std::int32_t> pages(static_cast<std::size_t>(part.pages_stride) * sequences.size(),
                                    -1);
    for (std::size_t s = 0; s < sequences.size(); ++s) {
      const auto begin = static_cast<std::size_t>(token_offsets[s]);
      const auto count = static_cast<std::size_t>(sequences[s].num_tokens);
      closed_row_slots(*sequences[s].cache, ratio, schema.page_rows, sequences[s].first_position,
                       all_slots.subspan(begin, count),
                       std::span<std::int32_t>(row_positions).subspan(begin, count));
      const std::span<const std::int32_t> table = sequences[s].cache->page_table(ratio);
      std::copy(table.begin(), table.end(),
                pages.begin() + static_cast<std::ptrdiff_t>(s) * part.pages_stride);
    }
    ratio_offsets[ratio] = {append(std::span<const std::int64_t>(slots)),
                            append(std::span<const std::int32_t>(row_positions)),
                            append(std::span<const std::int32_t>(pages))};
  }

  const auto bytes = static_cast<std::int64_t>(staging_.size());
  if (memory_.size_bytes() < bytes) memory_ = backend_.allocate(2 * bytes);
  backend_.copy_to_device(memory_.data(), staging_.data(), bytes);
  backend_.synchronize();

  plan.token_ids = at<std::int32_t>(token_ids_at);
  plan.positions = at<std::int32_t>(positions_at);
  plan.sequences = at<std::int32_t>(sequences_at);
  plan.token_offsets = at<std::int32_t>(offsets_at);
  plan.all_tokens = at<std::int32_t>(all_tokens_at);
  plan.state_idx = at<std::int32_t>(state_idx_at);
  plan.ring_slots = at<std::int64_t>(ring_slots_at);
  plan.logits_rows = at<std::int32_t>(logits_rows_at);
  for (auto& [ratio, part] : plan.ratios) {
    part.slots = at<std::int64_t>(ratio_offsets[ratio].slots);
    part.row_positions = at<std::int32_t>(ratio_offsets[ratio].row_positions);
    part.pages = at<std::int32_t>(ratio_offsets[ratio].pages);
  }
  return plan;
}

}  // namespace dsv4
