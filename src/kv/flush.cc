#include "kv/flush.h"

namespace dsv4 {

void ring_slots(const SequenceCache& sequence, std::int64_t ring_rows, std::int64_t first_position,
                std::span<std::int64_t> slots) {
  for (std::size_t i = 0; i < slots.size(); ++i) {
    const std::int64_t position = first_position + static_cast<std::int64_t>(i);
    slots[i] = sequence.state_idx() * ring_rows + position % ring_rows;
  }
}

void closed_row_slots(const SequenceCache& sequence, int compress_ratio, std::int64_t page_rows,
                      std::int64_t first_position, std::span<std::int64_t> slots,
                      std::span<std::int32_t> row_positions) {
  const std::span<const std::int32_t> pages = sequence.page_table(compress_ratio);
  for (std::size_t i = 0; i < slots.size(); ++i) {
    const std::int64_t position = first_position + static_cast<std::int64_t>(i);
    slots[i] = -1;
    row_positions[i] = -1;
    if ((position + 1) % compress_ratio != 0) continue;
    const std::int64_t row = position / compress_ratio;
    slots[i] = pages[static_cast<std::size_t>(row / page_rows)] * page_rows + row % page_rows;
    row_positions[i] = static_cast<std::int32_t>(row * compress_ratio);
  }
}

}  // namespace dsv4
