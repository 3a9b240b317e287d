// sampling_cases.h: rows of logits on which sampling is tested and measured.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "ops/sampling.h"
#include "testing/each_backend.h"
#include "testing/generators.h"
#include "testing/test_matrix.h"

namespace dsv4::testing {

struct SamplingCase {
  std::string name;
  std::int64_t vocab = 0;
  std::vector<SamplingRow> rows;
};

// Every cut by itself and together, over the vocabularies of tests and of the model. Each row is
// sampled at its own seed and position.
inline std::vector<SamplingCase> sampling_cases() {
  std::vector<SamplingRow> rows;
  for (const float temperature : {0.0f, 0.01f, 0.7f, 1.0f, 5.0f}) {
    for (const std::int32_t top_k : {0, 1, 2, 40}) {
      for (const float top_p : {1.0f, 0.9f, 0.3f, 1e-6f}) {
        for (const float min_p : {0.0f, 0.1f, 1.0f}) {
          SamplingRow row;
          row.temperature = temperature;
          row.top_k = top_k;
          row.top_p = top_p;
          row.min_p = min_p;
          row.seed = 1000 + rows.size();
          row.position = static_cast<std::int64_t>(rows.size() % 7);
          rows.push_back(row);
        }
      }
    }
  }
  std::vector<SamplingCase> cases;
  for (const std::int64_t vocab : {1, 2, 39, 40, 41, 1000}) {
    cases.push_back({"vocab_" + std::to_string(vocab), vocab, rows});
  }
  rows.resize(3);
  rows[1].temperature = 1;
  rows[2].temperature = 1;
  rows[2].top_p = 0.95f;
  cases.push_back({"full_vocab", 129280, rows});
  return cases;
}

inline HostMatrix make_inputs(const SamplingCase& c) {
  const auto num_rows = static_cast<std::int64_t>(c.rows.size());
  return HostMatrix(f32_spec().padded(3), num_rows, c.vocab,
                    normal_values(61, num_rows * c.vocab, 3));
}

struct SamplingOutputs {
  std::vector<std::int32_t> tokens;
  std::vector<float> logprobs;
};
inline SamplingOutputs run_sampling(Backend& backend, const std::vector<SamplingRow>& sampling_rows,
                                    const HostMatrix& logits) {
  const DeviceMatrix logits_on_device(backend, logits);
  const DeviceArray<SamplingRow> rows(backend, sampling_rows);
  const DeviceArray<std::int32_t> tokens(backend, rows.size());
  const DeviceArray<float> logprobs(backend, rows.size());
  SamplingParams params;
  params.logits = logits_on_device.view();
  params.rows = rows.data();
  params.tokens = tokens.data();
  params.logprobs = logprobs.data();
  run_op(backend, params);
  return {tokens.read(), logprobs.read()};
}

}  // namespace dsv4::testing
