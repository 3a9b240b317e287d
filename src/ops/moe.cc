// Refusals and cost of the experts' four ops.
#include "ops/moe.h"

#include <algorithm>
#include <limits>

#include "base/error.h"
#include "base/math.h"
#include "ops/op_checks.h"

namespace dsv4 {
namespace {

void check_expert_weights(const FieldPath& field, const MatrixView* weights, int num_experts,
                          std::int64_t rows, std::int64_t cols) {
  if (num_experts == 0) return;
  check_pointer(field, weights, "[num_experts] matrices in host memory");
  for (int e = 0; e < num_experts; ++e) {
    const FieldPath expert = field.element(e);
    check_matrix(expert, weights[e], kWeightFormats);
    check_equal(expert.member("rows"), weights[e].rows, "the output's columns", rows);
    check_equal(expert.member("cols"), weights[e].cols, "x.cols", cols);
  }
}

void check_expert_weights(const FieldPath& packed_field, const PackedExperts& packed,
                          std::initializer_list<const MatrixView*> unpacked, std::int64_t rows,
                          std::int64_t cols) {
  for (const MatrixView* weights : unpacked) {
    require(weights == nullptr, ErrorCode::kBadRequest,
            "{} is set; the arrays of weights must be null then", packed_field);
  }
  require(is_packed(packed.format), ErrorCode::kBadRequest, "{}.format is {}, must be {} or {}",
          packed_field, to_string(packed.format), to_string(Format::kMxfp4),
          to_string(Format::kNvfp4));
  check_equal(packed_field.member("rows"), packed.rows, "the output's columns", rows);
  check_equal(packed_field.member("cols"), packed.cols, "x.cols", cols);
}

// Bytes of `experts` packed experts as published: without padding.
std::int64_t packed_weight_bytes(const PackedExperts& packed, std::int64_t experts) {
  const std::int64_t block = packed.format == Format::kNvfp4 ? 16 : 32;
  return experts * packed.rows *
         (data_bytes(packed.format, packed.cols) + ceil_div(packed.cols, block));
}

// Bytes of the experts that `rows` rows can reach at most.
std::int64_t reached_weight_bytes(const MatrixView* weights, int num_experts, std::int64_t rows) {
  std::int64_t bytes = 0;
  for (std::int64_t e = 0; e < std::min<std::int64_t>(num_experts, rows); ++e) {
    bytes += matrix_bytes(weights[e]);
  }
  return bytes;
}

}  // namespace

void check(const MoeDispatchParams& p) {
  check_at_least("MoeDispatchParams.tokens", p.tokens, 0);
  check_at_least("MoeDispatchParams.experts_per_token", p.experts_per_token, 1);
  check_at_least("MoeDispatchParams.num_experts", p.num_experts, 1);
  check_pointer("MoeDispatchParams.expert_offsets", p.expert_offsets, "[num_experts + 1]");
  const auto pairs = checked_mul(p.tokens, p.experts_per_token);
  require(pairs.has_value() && *pairs <= std::numeric_limits<std::int32_t>::max(),
          ErrorCode::kBadRequest,
          "MoeDispatchParams.tokens is {}, times experts_per_token = {} it must fit 32-bit row "
          "numbers",
          p.tokens, p.experts_per_token);
  if (p.tokens == 0) return;
  constexpr const char* kPairs = "[tokens, experts_per_token]";
  check_pointer("MoeDispatchParams.expert_idx", p.expert_idx, kPairs);
  check_pointer("MoeDispatchParams.expert_weights", p.expert_weights, kPairs);
  check_pointer("MoeDispatchParams.row_tokens", p.row_tokens, kPairs);
  check_pointer("MoeDispatchParams.row_experts", p.row_experts, kPairs);
  check_pointer("MoeDispatchParams.row_weights", p.row_weights, kPairs);
  check_pointer("MoeDispatchParams.token_rows", p.token_rows, kPairs);
}

Cost cost(const MoeDispatchParams& p) {
  const std::int64_t pairs = p.tokens * p.experts_per_token;
  return {0, 8 * pairs, 16 * pairs + 4 * (p.num_experts + 1)};
}

void check(const ExpertPackParams& p) {
  check_at_least("ExpertPackParams.num_experts", p.num_experts, 1);
  check_pointer("ExpertPackParams.weights", p.weights, "[num_experts] matrices in host memory");
  const auto check_like_first = [&](const FieldPath& field, const MatrixView* weights) {
    for (int e = 0; e < p.num_experts; ++e) {
      const FieldPath expert = field.element(e);
      check_matrix(expert, weights[e], kWeightFormats);
      check_equal(expert.member("rows"), weights[e].rows, "weights[0].rows", p.weights[0].rows);
      check_equal(expert.member("cols"), weights[e].cols, "weights[0].cols", p.weights[0].cols);
      require(weights[e].format == p.weights[0].format, ErrorCode::kBadRequest,
              "{}.format is {}, must be weights[0].format = {}", expert,
              to_string(weights[e].format), to_string(p.weights[0].format));
    }
  };
  check_like_first("ExpertPackParams.weights", p.weights);
  if (p.up_weights != nullptr) check_like_first("ExpertPackParams.up_weights", p.up_weights);
  check_pointer("ExpertPackParams.out", p.out, "[packed_bytes]");
}

Cost cost(const ExpertPackParams& p) {
  std::int64_t bytes = 0;
  for (int e = 0; e < p.num_experts; ++e) {
    bytes += matrix_bytes(p.weights[e]);
    if (p.up_weights != nullptr) bytes += matrix_bytes(p.up_weights[e]);
  }
  return {0, bytes, bytes};
}

void check(const ExpertGateUpParams& p) {
  check_activations("ExpertGateUpParams.x", p.x, kActivationFormats);
  check_matrix("ExpertGateUpParams.out", p.out, {Format::kF32, Format::kBf16, Format::kNvfp4});
  if (p.out.format == Format::kNvfp4) {
    check_equal("ExpertGateUpParams.out.global_scale_stride", p.out.global_scale_stride,
                "one global scale a row", 1);
    check_pointer("ExpertGateUpParams.out_global_scales", p.out_global_scales, "[num_experts]");
  }
  if (p.row_tokens == nullptr) {
    check_equal("ExpertGateUpParams.out.rows", p.out.rows, "x.rows, where row_tokens is null",
                p.x.rows);
  }
  check_at_least("ExpertGateUpParams.num_experts", p.num_experts, 0);
  if (p.packed.data != nullptr) {
    check_expert_weights("ExpertGateUpParams.packed", p.packed, {p.gate_weights, p.up_weights},
                         p.out.cols, p.x.cols);
  } else {
    check_expert_weights("ExpertGateUpParams.gate_weights", p.gate_weights, p.num_experts,
                         p.out.cols, p.x.cols);
    check_expert_weights("ExpertGateUpParams.up_weights", p.up_weights, p.num_experts, p.out.cols,
                         p.x.cols);
  }
  check_pointer("ExpertGateUpParams.expert_offsets", p.expert_offsets, "[num_experts + 1]");
  check_not_negative("ExpertGateUpParams.swiglu_limit", p.swiglu_limit);
}

Cost cost(const ExpertGateUpParams& p) {
  const std::int64_t rows = p.out.rows;
  const auto products = static_cast<double>(rows) * static_cast<double>(p.out.cols);
  Cost cost;
  cost.flops = 4 * products * static_cast<double>(p.x.cols) + 6 * products;
  cost.bytes_read =
      matrix_bytes(p.x, std::min(rows, p.x.rows)) +
      (p.packed.data != nullptr
           ? 2 * packed_weight_bytes(p.packed, std::min<std::int64_t>(p.num_experts, rows))
           : reached_weight_bytes(p.gate_weights, p.num_experts, rows) +
                 reached_weight_bytes(p.up_weights, p.num_experts, rows)) +
      4 * (p.num_experts + 1) + (p.row_tokens == nullptr ? 0 : 4 * rows) +
      (p.row_weights == nullptr ? 0 : 4 * rows);
  cost.bytes_written = matrix_bytes(p.out);
  return cost;
}

void check(const ExpertDownParams& p) {
  check_activations("ExpertDownParams.x", p.x, kActivationFormats);
  check_matrix("ExpertDownParams.out", p.out, kPlainFormats);
  check_equal("ExpertDownParams.out.rows", p.out.rows, "x.rows", p.x.rows);
  check_at_least("ExpertDownParams.num_experts", p.num_experts, 0);
  if (p.packed.data != nullptr) {
    check_expert_weights("ExpertDownParams.packed", p.packed, {p.down_weights}, p.out.cols,
                         p.x.cols);
  } else {
    check_expert_weights("ExpertDownParams.down_weights", p.down_weights, p.num_experts, p.out.cols,
                         p.x.cols);
  }
  check_pointer("ExpertDownParams.expert_offsets", p.expert_offsets, "[num_experts + 1]");
}

Cost cost(const ExpertDownParams& p) {
  Cost cost;
  cost.flops = 2 * static_cast<double>(p.out.rows) * static_cast<double>(p.out.cols) *
               static_cast<double>(p.x.cols);
  cost.bytes_read =
      matrix_bytes(p.x) +
      (p.packed.data != nullptr
           ? packed_weight_bytes(p.packed, std::min<std::int64_t>(p.num_experts, p.x.rows))
           : reached_weight_bytes(p.down_weights, p.num_experts, p.x.rows)) +
      4 * (p.num_experts + 1);
  cost.bytes_written = matrix_bytes(p.out);
  return cost;
}

void check(const MoeCombineParams& p) {
  check_matrix("MoeCombineParams.out", p.out, kPlainFormats);
  check_matrix("MoeCombineParams.expert_out", p.expert_out, kPlainFormats);
  check_equal("MoeCombineParams.expert_out.cols", p.expert_out.cols, "out.cols", p.out.cols);
  check_at_least("MoeCombineParams.experts_per_token", p.experts_per_token, 0);
  if (p.out.rows > 0 && p.experts_per_token > 0) {
    check_pointer("MoeCombineParams.token_rows", p.token_rows, "[tokens, experts_per_token]");
  }
  if (p.shared_out.data == nullptr) return;
  check_matrix("MoeCombineParams.shared_out", p.shared_out, kPlainFormats);
  check_equal("MoeCombineParams.shared_out.rows", p.shared_out.rows, "out.rows", p.out.rows);
  check_equal("MoeCombineParams.shared_out.cols", p.shared_out.cols, "out.cols", p.out.cols);
}

Cost cost(const MoeCombineParams& p) {
  const std::int64_t pairs = p.out.rows * p.experts_per_token;
  const bool shared = p.shared_out.data != nullptr;
  Cost cost;
  cost.flops =
      static_cast<double>(pairs + (shared ? p.out.rows : 0)) * static_cast<double>(p.out.cols);
  cost.bytes_read = matrix_bytes(p.expert_out, std::min(pairs, p.expert_out.rows)) + 4 * pairs +
                    (shared ? matrix_bytes(p.shared_out) : 0);
  cost.bytes_written = matrix_bytes(p.out);
  return cost;
}

}  // namespace dsv4
