// group_encoder.h: matrices of any format to NVFP4 under one global scale, in pieces of rows, with
// what it cost. Files, tensors' names in them and the choice of matrices are the caller's
// (quantize.h).
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "base/thread_pool.h"
#include "checkpoint/matrix_list.h"
#include "numerics/e2m1.h"
#include "ops/backend.h"
#include "quantizer/error_tally.h"

namespace dsv4 {

// Matrices that share a global scale: gate and up of one expert, else one matrix. All members have
// the same number of columns; their formats may differ.
struct MatrixGroup {
  std::vector<NamedMatrix> members;
};

struct EncodingOptions {
  E2m1Rounding rounding = E2m1Rounding::kNearestEven;
  bool four_over_six = false;  // QuantizeParams; not for sources that are FP4 already
  // The file stores 1 / g: what is encoded from values takes the g that this decodes to.
  bool stores_reciprocal = false;
};

// Throws Error kUnsupported for columns that are no multiple of 16.
void require_whole_blocks(const NamedMatrix& matrix);

// Told that rows [begin, end) of a member will not be read again before encode() asks for them.
using RowsReadCallback =
    std::function<void(const NamedMatrix& matrix, std::int64_t begin, std::int64_t end)>;

// What the encoder of a group holds in memory, whatever the matrices' rows: about 7 bytes for each
// of kEncoderChunkValues values, or of the values of one row where a row has more.
inline constexpr std::int64_t kEncoderChunkValues = std::int64_t{1} << 20;

// The global scale and the rule by which a quant block of 16 gets its bytes:
//   BF16, F32, FP8  g = amax of the group / 2688 (four over six: / 1536), codes by QuantizeParams.
//                   g = 1 and codes 0 where amax is 0, or so small that g would be 0. Where the
//                   file stores 1 / g, g is the reciprocal of the stored FP32.
//   MXFP4, NVFP4    each block has an exact multiplier: 2^k, or e4m3 * g of its matrix.
//                   MXFP4: g = 2^(k_max - 8), k_max over the blocks with a nonzero code in all
//                   members. NVFP4: the largest g of the members.
//                   A block is cast, its codes unchanged, where multiplier / g is an E4M3 number.
//                   Block scales come out without a sign, since engines take them for unsigned: a
//                   negative multiplier gives its sign to the codes, zeros included.
//                   A block without a nonzero code is always cast: its scale is the nearest to
//                   multiplier / g that there is (of MXFP4: the nearest power of two), which keeps
//                   every -0. Any other block is encoded again from its decoded values, its
//                   block scale clamped to [2^-9, 448] as ModelOpt's cast does.
// A group with members of both sorts is encoded from values, like BF16.
class GroupEncoder {
 public:
  // Reads the group once: of FP4 sources the block scales and few codes, of others every value.
  // `rows_read` (may be empty) hears of pieces that are done, in ascending order of members and
  // rows. `backend` must use host memory; both it and `pool` must outlive the encoder.
  // Throws Error: kBadCheckpoint with the matrix, row and column of the first value that is NaN or
  // infinite (an FP4 block whose scale is NaN counts, whatever its codes); kUnsupported for columns
  // that are not a multiple of 16.
  GroupEncoder(Backend& backend, ThreadPool& pool, MatrixGroup group,
               const EncodingOptions& options, const RowsReadCallback& rows_read = {});
  ~GroupEncoder();
  GroupEncoder(const GroupEncoder&) = delete;
  GroupEncoder& operator=(const GroupEncoder&) = delete;

  float global_scale() const;  // finite, > 0

  // Encodes rows [begin, end) of member `member_idx` into codes [end - begin, cols / 2] and
  // block_scales [end - begin, cols / 16], and adds what it cost to `tally` (error_tally.h says
  // when its sums are repeatable). The bytes do not depend on how rows are cut or on threads. One
  // call at a time.
  void encode(int member_idx, std::int64_t begin, std::int64_t end, std::uint8_t* codes,
              std::uint8_t* block_scales, ErrorTally& tally);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace dsv4
