// fp4_scan.h: the global scale under which matrices that are FP4 already are cast, from their block
// scales. The cast: row_encoder.h.
#pragma once

#include "base/thread_pool.h"
#include "quantizer/group_encoder.h"

namespace dsv4 {

// Whether all members are MXFP4, or all NVFP4.
bool can_cast(const MatrixGroup& group);

// The new global scale of a group that can be cast, as GroupEncoder says; 1 for MXFP4 without a
// nonzero code. Reads block scales, and codes of few blocks. Throws as GroupEncoder's constructor.
float cast_global_scale(ThreadPool& pool, const MatrixGroup& group,
                        const RowsReadCallback& rows_read);

}  // namespace dsv4
