// flush.h: where a step's rows go: ring slots of tokens, page slots of the groups that they close.
#pragma once

#include <cstdint>
#include <span>

#include "kv/handle.h"

namespace dsv4 {

// slots[i] = ring slot of position first_position + i.
void ring_slots(const SequenceCache& sequence, std::int64_t ring_rows, std::int64_t first_position,
                std::span<std::int64_t> slots);

// For token i at p = first_position + i: if it closes group j = p / ratio, slots[i] is the slot of
// row j and row_positions[i] = ratio * j, the position that row j is rotated to; otherwise both are
// -1.
void closed_row_slots(const SequenceCache& sequence, int compress_ratio, std::int64_t page_rows,
                      std::int64_t first_position, std::span<std::int64_t> slots,
                      std::span<std::int32_t> row_positions);

}  // namespace dsv4
