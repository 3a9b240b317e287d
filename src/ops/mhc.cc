// Refusals and costs of hyper-connections.
#include "ops/mhc.h"

#include "base/error.h"
#include "base/math.h"
#include "ops/op_checks.h"

namespace dsv4 {
namespace {

// What HcPreParams and HcHeadParams have in common: x, the mixes' weight, the norm and out.
template <class Params>
void check_mix(const FieldPath& op, const Params& p, std::int64_t num_mixes,
               std::string_view num_mixes_formula) {
  check_matrix(op.member("x"), p.x, kPlainFormats);
  require(p.x.cols % p.copies == 0, ErrorCode::kBadRequest,
          "{}.x.cols is {}, must be a multiple of copies = {}", op, p.x.cols, p.copies);
  const std::int64_t dim = p.x.cols / p.copies;
  check_matrix(op.member("mix_weight"), p.mix_weight, kF32Format);
  check_equal(op.member("mix_weight.rows"), p.mix_weight.rows, num_mixes_formula, num_mixes);
  check_equal(op.member("mix_weight.cols"), p.mix_weight.cols, "x.cols", p.x.cols);
  check_matrix(op.member("out"), p.out, kPlainFormats);
  check_equal(op.member("out.rows"), p.out.rows, "x.rows", p.x.rows);
  check_equal(op.member("out.cols"), p.out.cols, "x.cols / copies", dim);
  require(p.base != nullptr, ErrorCode::kBadRequest, "{}.base is null, must point to [{}]", op,
          num_mixes_formula);
  check_not_negative(op.member("hc_eps"), p.hc_eps);
  check_not_negative(op.member("norm_eps"), p.norm_eps);
  if (p.norm_weight.data == nullptr) return;
  check_matrix(op.member("norm_weight"), p.norm_weight, kPlainFormats);
  check_equal(op.member("norm_weight.rows"), p.norm_weight.rows, "one row", 1);
  check_equal(op.member("norm_weight.cols"), p.norm_weight.cols, "x.cols / copies", dim);
}

// Copies of a token: at least one, and few enough that copies^2 is a harmless product.
void check_copies(const FieldPath& field, int copies) {
  check_at_least(field, copies, 1);
  check_at_most(field, copies, "the most residual copies", 1024);
}

template <class Params>
Cost mix_cost(const Params& p) {
  // The mixes and the mean of squares, then the weighted sum over the copies and its norm.
  const double elements = static_cast<double>(p.x.rows) * static_cast<double>(p.x.cols);
  const double out_elements = static_cast<double>(p.x.rows) * static_cast<double>(p.out.cols);
  const bool normed = p.norm_weight.data != nullptr;
  return {2.0 * elements * (static_cast<double>(p.mix_weight.rows) + 2.0) +
              (normed ? 4.0 * out_elements : 0.0),
          matrix_bytes(p.x) + matrix_bytes(p.mix_weight) +
              (normed ? matrix_bytes(p.norm_weight) : 0) + 4 * p.mix_weight.rows,
          matrix_bytes(p.out)};
}

}  // namespace

void check(const HcPreParams& p) {
  check_copies("HcPreParams.copies", p.copies);
  check_mix("HcPreParams", p, std::int64_t{2 + p.copies} * p.copies, "(2 + copies) * copies");
  check_at_least("HcPreParams.sinkhorn_iters", p.sinkhorn_iters, 1);
  check_pointer("HcPreParams.scales", p.scales, "[3]");
  if (p.x.rows == 0) return;
  check_pointer("HcPreParams.post", p.post, "[x.rows, copies]");
  check_pointer("HcPreParams.comb", p.comb, "[x.rows, copies, copies]");
}

Cost cost(const HcPreParams& p) {
  Cost total = mix_cost(p);
  const std::int64_t copies = p.copies;
  total.flops += static_cast<double>(p.x.rows * 4 * copies * copies * p.sinkhorn_iters);
  total.bytes_read += 4 * 3;
  total.bytes_written += 4 * p.x.rows * (copies + copies * copies);
  return total;
}

void check(const HcPostParams& p) {
  check_copies("HcPostParams.copies", p.copies);
  check_matrix("HcPostParams.x", p.x, kPlainFormats);
  check_matrix("HcPostParams.y", p.y, kPlainFormats);
  check_matrix("HcPostParams.out", p.out, kPlainFormats);
  require(p.x.cols % p.copies == 0, ErrorCode::kBadRequest,
          "HcPostParams.x.cols is {}, must be a multiple of copies = {}", p.x.cols, p.copies);
  check_equal("HcPostParams.y.rows", p.y.rows, "x.rows", p.x.rows);
  check_equal("HcPostParams.y.cols", p.y.cols, "x.cols / copies", p.x.cols / p.copies);
  check_equal("HcPostParams.out.rows", p.out.rows, "x.rows", p.x.rows);
  check_equal("HcPostParams.out.cols", p.out.cols, "x.cols", p.x.cols);
  if (p.x.rows == 0) return;
  check_pointer("HcPostParams.post", p.post, "[x.rows, copies]");
  check_pointer("HcPostParams.comb", p.comb, "[x.rows, copies, copies]");
}

Cost cost(const HcPostParams& p) {
  const std::int64_t copies = p.copies;
  return {2.0 * static_cast<double>(p.x.rows) * static_cast<double>(p.x.cols) * (1.0 + p.copies),
          matrix_bytes(p.x) + matrix_bytes(p.y) + 4 * p.x.rows * (copies + copies * copies),
          matrix_bytes(p.out)};
}

void check(const HcHeadParams& p) {
  check_copies("HcHeadParams.copies", p.copies);
  check_mix("HcHeadParams", p, p.copies, "copies");
  check_pointer("HcHeadParams.scale", p.scale, "[1]");
}

Cost cost(const HcHeadParams& p) {
  Cost total = mix_cost(p);
  total.bytes_read += 4;
  return total;
}

}  // namespace dsv4
