// Refusals, cost and state size of the compressor's two ops.
#include "ops/compressor.h"

#include "base/error.h"
#include "ops/op_checks.h"

namespace dsv4 {
namespace {

// Width of values and scores: an overlapping group reads one half of its own tokens' channels and
// the other half of the group before.
std::int64_t token_width(const CompressorTokens& tokens) {
  return (tokens.overlapping ? 2 : 1) * tokens.row_dim;
}

void check_tokens(const FieldPath& op, const CompressorTokens& tokens) {
  const FieldPath field = op.member("tokens");
  check_at_least(field.member("compress_ratio"), tokens.compress_ratio, 1);
  check_at_least(field.member("row_dim"), tokens.row_dim, 1);
  check_matrix(field.member("values"), tokens.values, kF32Format);
  check_matrix(field.member("scores"), tokens.scores, kF32Format);
  const char* const width = tokens.overlapping ? "2 row_dim" : "row_dim";
  check_equal(field.member("values.cols"), tokens.values.cols, width, token_width(tokens));
  check_equal(field.member("scores.cols"), tokens.scores.cols, width, token_width(tokens));
  check_equal(field.member("scores.rows"), tokens.scores.rows, "values.rows", tokens.values.rows);
  check_pointer(field.member("ape"), tokens.ape, "[compress_ratio, values.cols]");
  check_at_least(field.member("num_sequences"), tokens.num_sequences, 0);
  check_at_least(
      field.member("state_stride"), tokens.state_stride,
      compressor_state_floats(tokens.compress_ratio, tokens.overlapping, tokens.row_dim));
  if (tokens.num_sequences > 0) {
    check_pointer(field.member("token_offsets"), tokens.token_offsets, "[num_sequences + 1]");
    check_pointer(field.member("state_idx"), tokens.state_idx, "[num_sequences]");
  }
  if (tokens.values.rows > 0)
    check_pointer(field.member("positions"), tokens.positions, "[tokens]");
}

std::int64_t token_bytes(const CompressorTokens& tokens) {
  return matrix_bytes(tokens.values) + matrix_bytes(tokens.scores) + 4 * tokens.values.rows +
         4 * tokens.compress_ratio * token_width(tokens);
}

std::int64_t all_states_bytes(const CompressorTokens& tokens) {
  return 4 * tokens.num_sequences *
         compressor_state_floats(tokens.compress_ratio, tokens.overlapping, tokens.row_dim);
}

}  // namespace

std::int64_t compressor_state_floats(int compress_ratio, bool overlapping, std::int64_t row_dim) {
  return overlapping ? std::int64_t{2} * compress_ratio * 2 * (2 * row_dim) : 3 * row_dim;
}

void check(const CompressParams& p) {
  check_tokens("CompressParams", p.tokens);
  check_matrix("CompressParams.norm_weight", p.norm_weight, kPlainFormats);
  check_equal("CompressParams.norm_weight.rows", p.norm_weight.rows, "one row", 1);
  check_equal("CompressParams.norm_weight.cols", p.norm_weight.cols, "tokens.row_dim",
              p.tokens.row_dim);
  check_not_negative("CompressParams.eps", p.eps);
  check_matrix("CompressParams.rows", p.rows, kF32Format);
  check_equal("CompressParams.rows.rows", p.rows.rows, "tokens.values.rows", p.tokens.values.rows);
  check_equal("CompressParams.rows.cols", p.rows.cols, "tokens.row_dim", p.tokens.row_dim);
  if (p.tokens.num_sequences > 0) check_pointer("CompressParams.states", p.states, "the states");
}

// A token costs six operations a channel (maximum, two products, two sums, an exponential) and a
// row closes every compress_ratio tokens.
Cost cost(const CompressParams& p) {
  const std::int64_t num_tokens = p.tokens.values.rows;
  const std::int64_t closed_rows = num_tokens / p.tokens.compress_ratio;
  const std::int64_t width = token_width(p.tokens);
  Cost cost;
  cost.flops =
      static_cast<double>(6 * num_tokens * width) + static_cast<double>(4 * closed_rows * width);
  cost.bytes_read =
      token_bytes(p.tokens) + all_states_bytes(p.tokens) + matrix_bytes(p.norm_weight);
  cost.bytes_written = 4 * closed_rows * p.tokens.row_dim;
  return cost;
}

void check(const CompressorCommitParams& p) {
  check_tokens("CompressorCommitParams", p.tokens);
  if (p.tokens.num_sequences > 0) {
    check_pointer("CompressorCommitParams.states", p.states, "the states");
  }
}

Cost cost(const CompressorCommitParams& p) {
  const std::int64_t width = token_width(p.tokens);
  Cost cost;
  cost.flops = static_cast<double>((p.tokens.overlapping ? 1 : 6) * p.tokens.values.rows * width);
  cost.bytes_read = token_bytes(p.tokens);
  if (p.tokens.overlapping) {
    cost.bytes_written = 8 * p.tokens.values.rows * width;
  } else {
    cost.bytes_read += all_states_bytes(p.tokens);
    cost.bytes_written = all_states_bytes(p.tokens);
  }
  return cost;
}

}  // namespace dsv4
