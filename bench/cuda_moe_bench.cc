// The two expert GEMMs at the released models' sizes, all experts in memory, bound by the bytes of
// the experts that the tokens reach, or by products.
// The sizes, the targets and the routing: cuda_moe_cases.h.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <vector>

#include "base/thread_pool.h"
#include "bench/cuda_bench.h"
#include "bench/cuda_moe_cases.h"
#include "cuda/bench/fill.h"
#include "ops/moe.h"
#include "tensor/matrix_codec.h"
#include "testing/expert_oracle.h"
#include "testing/generators.h"
#include "testing/test_matrix.h"

namespace dsv4::bench {
namespace {

using testing::HostMatrix;
using testing::Judged;
using testing::MatrixSpec;

constexpr float kSwigluLimit = 10;

class ExpertBench {
 public:
  ExpertBench(CudaBench& bench, const ExpertGemm& gemm, const MatrixSpec& spec)
      : bench_(bench), backend_(bench.backend()), gemm_(gemm), spec_(spec) {}

  void run(std::int64_t tokens, Routing routing) {
    CudaBenchmark b{.op = gemm_.gate_up ? "expert_gate_up" : "expert_down",
                    .shape = gemm_.shape(),
                    .format = fmt::format("{}{}", to_string(spec_.format),
                                          routing == Routing::kSkewed ? "-skewed" : ""),
                    .m = tokens};
    if (!bench_.wants(b)) return;
    if (weights_.empty()) make_weights();
    if (packed_.data == nullptr) {
      fmt::print("{:<16} {:<16} {:<20} {}\n", b.op, b.shape, b.format, unsupported_);
      return;
    }
    if (routing == Routing::kUniform && spec_.format == Format::kNvfp4) {
      b.target_us = gemm_.figures.at(tokens).target_us;
      b.published_peer_us = gemm_.figures.at(tokens).marlin_us;
    }
    make_inputs(tokens, routing);
    const double rows = static_cast<double>(tokens * kExpertsPerToken);
    double reached = 0;
    for (const Set& set : sets_) reached += set.reached;
    b.bytes = reached / static_cast<double>(sets_.size()) * expert_bytes();
    b.flops = 2 * rows * static_cast<double>(gemm_.n * gemm_.k * num_matrices());
    b.num_sets = static_cast<std::int64_t>(sets_.size());
    b.call = [this](std::int64_t call_idx, DeviceStream stream) {
      run_set(sets_[static_cast<std::size_t>(call_idx) % sets_.size()], stream);
    };
    b.check = [this] { return compare_samples(sets_.back()); };
    bench_.run(b);
    sets_.clear();
    inputs_.clear();
  }

 private:
  struct Set {
    std::vector<std::int32_t> offsets, row_tokens;
    std::vector<float> row_weights;
    double reached;  // experts
    ExpertGateUpParams gate_up;
    ExpertDownParams down;
  };
  // Sixteen neurons of an expert, and rows of it.
  struct Sample {
    int expert;
    std::int64_t neuron;
    std::vector<std::int64_t> rows;
    std::vector<HostMatrix> matrices;
  };

  int num_matrices() const { return gemm_.gate_up ? 2 : 1; }
  double expert_bytes() const {
    return static_cast<double>(num_matrices() * gemm_.n *
                               (gemm_.k / 2 + gemm_.k / spec_.block_cols));
  }

  std::byte* allocate(std::vector<DeviceBuffer>& buffers, std::int64_t bytes) {
    buffers.push_back(backend_.allocate(bytes));
    return buffers.back().data();
  }
  template <class T>
  const T* upload(const std::vector<T>& values) {
    const auto bytes = static_cast<std::int64_t>(values.size() * sizeof(T));
    std::byte* const to = allocate(inputs_, bytes);
    backend_.copy_to_device(to, values.data(), bytes);
    backend_.synchronize();
    return reinterpret_cast<const T*>(to);
  }

  // Gates and ups of about deviation 1 from normal inputs: codes have 2.9; the block scales here
  // root mean squares of about 0.9 (NVFP4) and 2^-9 (MXFP4).
  void make_weights() {
    const std::int64_t codes = gemm_.n * gemm_.k / 2;
    const std::int64_t scales = gemm_.n * gemm_.k / spec_.block_cols;
    const auto global_scale =
        static_cast<float>(1 / (2.6 * std::sqrt(static_cast<double>(gemm_.k))));
    for (int i = 0; i < num_matrices(); ++i) {
      std::byte* const data = allocate(weights_, gemm_.num_experts * codes);
      std::byte* const block_scales = allocate(weights_, gemm_.num_experts * scales);
      std::byte* const global_scales = allocate(weights_, sizeof(float));
      const auto seed = static_cast<std::uint64_t>(10 + i);
      cuda::fill_random_bytes(data, gemm_.num_experts * codes, seed, 0xFF);
      if (spec_.format == Format::kNvfp4) {
        cuda::fill_random_bytes(block_scales, gemm_.num_experts * scales, 20 + seed, 0x1F, 0x20);
      } else {
        cuda::fill_random_bytes(block_scales, gemm_.num_experts * scales, 20 + seed, 0x03, 0x74);
      }
      backend_.copy_to_device(global_scales, &global_scale, sizeof(float));
      backend_.synchronize();
      HostMatrix shape(spec_, 0, gemm_.k);
      for (int e = 0; e < gemm_.num_experts; ++e) {
        MatrixView view = shape.view_on(reinterpret_cast<std::uint8_t*>(data + e * codes),
                                        reinterpret_cast<std::uint8_t*>(block_scales + e * scales),
                                        reinterpret_cast<float*>(global_scales));
        view.rows = gemm_.n;
        views_[i].push_back(view);
      }
    }
    ExpertPackParams pack;
    pack.weights = views_[0].data();
    pack.up_weights = gemm_.gate_up ? views_[1].data() : nullptr;
    pack.num_experts = gemm_.num_experts;
    const std::int64_t bytes = backend_.packed_bytes(pack);
    if (const Support support = backend_.supports(pack); !support || bytes == 0) {
      unsupported_ = support ? "this backend packs no such weights" : support.reason;
      return;
    }
    pack.out = allocate(weights_, bytes);
    backend_.run(pack);
    backend_.synchronize();
    packed_ = {pack.out, spec_.format, gemm_.n, gemm_.k};
  }

  void make_inputs(std::int64_t tokens, Routing routing) {
    const std::int64_t rows = tokens * kExpertsPerToken;
    const std::int64_t x_rows = gemm_.gate_up ? tokens : rows;
    x_ = reinterpret_cast<std::uint16_t*>(allocate(inputs_, x_rows * gemm_.k * 2));
    cuda::fill_normal_bf16(x_, x_rows * gemm_.k, 3);
    out_ = reinterpret_cast<std::uint16_t*>(allocate(inputs_, rows * gemm_.n * 2));
    // Few tokens reach so few experts that these would stay in the L2: other routings in turn, for
    // one token none with an expert of another. Eight are also enough for their number of experts
    // to be near its mean.
    const std::int64_t num_sets = tokens <= 128 ? 8 : 2;
    testing::Random random(4);
    ExpertTokens used(static_cast<std::size_t>(gemm_.num_experts));
    for (std::int64_t i = 0; i < num_sets; ++i) {
      ExpertTokens experts = route(tokens, gemm_.num_experts, routing, random);
      while (tokens == 1 && share_an_expert(experts, used)) {
        experts = route(tokens, gemm_.num_experts, routing, random);
      }
      sets_.push_back(make_set(experts, random, tokens));
      for (std::size_t e = 0; e < experts.size(); ++e) {
        used[e].insert(used[e].end(), experts[e].begin(), experts[e].end());
      }
    }
  }

  Set make_set(const ExpertTokens& experts, testing::Random& random, std::int64_t tokens) {
    Set set;
    set.offsets = {0};
    set.reached = 0;
    for (const auto& rows : experts) {
      set.row_tokens.insert(set.row_tokens.end(), rows.begin(), rows.end());
      set.offsets.push_back(static_cast<std::int32_t>(set.row_tokens.size()));
      set.reached += rows.empty() ? 0 : 1;
    }
    for (std::size_t r = 0; r < set.row_tokens.size(); ++r) {
      set.row_weights.push_back(static_cast<float>(random.uniform(0.1, 1)));
    }
    const std::int32_t* const offsets = upload(set.offsets);
    const auto rows = static_cast<std::int64_t>(set.row_tokens.size());
    const auto wire = [&](auto& p) {
      p.packed = packed_;
      p.num_experts = gemm_.num_experts;
      p.expert_offsets = offsets;
      p.x = bf16_matrix(x_, gemm_.gate_up ? tokens : rows, gemm_.k);
      p.out = bf16_matrix(out_, rows, gemm_.n);
    };
    wire(set.gate_up);
    wire(set.down);
    if (!gemm_.gate_up) return set;
    set.gate_up.row_tokens = upload(set.row_tokens);
    set.gate_up.row_weights = upload(set.row_weights);
    set.gate_up.swiglu_limit = kSwigluLimit;
    return set;
  }

  void run_set(const Set& set, DeviceStream stream) {
    if (gemm_.gate_up) {
      backend_.run(set.gate_up, {.stream = stream});
    } else {
      backend_.run(set.down, {.stream = stream});
    }
  }

  // The first and the last row of every expert at 16 neurons; for every 16th expert two rows more,
  // and 256 neurons: with 256 experts in use, 64 such rows.
  std::vector<Sample> choose_samples(const Set& set) const {
    std::vector<Sample> samples;
    const std::int64_t blocks = gemm_.n / 16;
    int reached = 0;
    for (int e = 0; e < gemm_.num_experts; ++e) {
      const std::int64_t begin = set.offsets[e], end = set.offsets[e + 1];
      if (begin == end) continue;
      const int num_blocks = reached++ % 16 == 0 ? 16 : 1;
      std::vector<std::int64_t> rows = {begin, end - 1};
      if (num_blocks > 1) {
        rows.push_back(begin + (end - begin) / 3);
        rows.push_back(begin + (end - begin) * 2 / 3);
      }
      for (int i = 0; i < num_blocks; ++i) {
        const std::int64_t block =
            num_blocks == 1 ? e * 37 % blocks : i * (blocks - 1) / (num_blocks - 1);
        samples.push_back({e, 16 * block, rows, {}});
      }
    }
    return samples;
  }

  // Neurons of a matrix in device memory.
  HostMatrix neurons_from(const MatrixView& m, std::int64_t first) {
    HostMatrix host(spec_, 16, gemm_.k);
    const auto copy = [&](std::vector<std::uint8_t>& to, const void* from) {
      const auto bytes = static_cast<std::int64_t>(to.size());
      backend_.copy_to_host(to.data(), static_cast<const std::byte*>(from) + first / 16 * bytes,
                            bytes);
    };
    copy(host.data, m.data);
    copy(host.block_scales, m.block_scales);
    if (m.global_scales != nullptr) {
      backend_.copy_to_host(host.global_scales.data(), m.global_scales, sizeof(float));
    }
    return host;
  }
  std::vector<std::uint16_t> row_from(const std::uint16_t* m, std::int64_t row, std::int64_t cols) {
    std::vector<std::uint16_t> host(static_cast<std::size_t>(cols));
    backend_.copy_to_host(host.data(), m + row * cols, 2 * cols);
    return host;
  }

  // Against the reference's arithmetic in FP64.
  std::string compare_samples(const Set& set) {
    run_set(set, {});
    std::vector<Sample> samples = choose_samples(set);
    std::map<std::int64_t, std::vector<std::uint16_t>> x, got;
    for (Sample& sample : samples) {
      for (int i = 0; i < num_matrices(); ++i) {
        sample.matrices.push_back(neurons_from(views_[i][sample.expert], sample.neuron));
      }
      for (const std::int64_t row : sample.rows) {
        if (x.contains(row)) continue;
        x[row] = row_from(x_, gemm_.gate_up ? set.row_tokens[row] : row, gemm_.k);
        got[row] = row_from(out_, row, gemm_.n);
      }
    }
    backend_.synchronize();
    std::vector<std::string> wrong(samples.size());
    pool_.parallel_for(static_cast<std::int64_t>(samples.size()), 1,
                       [&](std::int64_t begin, std::int64_t) {
                         wrong[begin] = compare_sample(samples[begin], set, x, got);
                       });
    for (const std::string& each : wrong) {
      if (!each.empty()) return each;
    }
    return {};
  }

  std::string compare_sample(const Sample& sample, const Set& set,
                             const std::map<std::int64_t, std::vector<std::uint16_t>>& x,
                             const std::map<std::int64_t, std::vector<std::uint16_t>>& got) const {
    std::vector<std::vector<float>> weights;
    for (const HostMatrix& m : sample.matrices) weights.push_back(m.values());
    std::vector<float> inputs(static_cast<std::size_t>(gemm_.k));
    for (const std::int64_t row : sample.rows) {
      decode_matrix_row(bf16_matrix(x.at(row).data(), 1, gemm_.k), 0, inputs.data());
      for (int i = 0; i < 16; ++i) {
        Judged want = testing::judged_dot(inputs.data(), weights[0].data() + i * gemm_.k, gemm_.k);
        if (gemm_.gate_up) {
          want = testing::judged_swiglu(
              want, testing::judged_dot(inputs.data(), weights[1].data() + i * gemm_.k, gemm_.k),
              kSwigluLimit, set.row_weights[row]);
        }
        const float value = decode_bf16(got.at(row)[sample.neuron + i]);
        if (want.allows(value, Format::kBf16)) continue;
        return fmt::format("row {} of expert {}, neuron {}: {}, must be {} within {}", row,
                           sample.expert, sample.neuron + i, value, want.value,
                           want.stored_as(Format::kBf16).error);
      }
    }
    return {};
  }

  CudaBench& bench_;
  Backend& backend_;
  const ExpertGemm gemm_;
  const MatrixSpec spec_;
  ThreadPool pool_;
  std::string unsupported_;
  std::vector<DeviceBuffer> weights_, inputs_;
  std::vector<MatrixView> views_[2];  // [experts] of gate and up, or of down
  PackedExperts packed_;
  std::uint16_t* x_ = nullptr;    // [tokens or rows, k]
  std::uint16_t* out_ = nullptr;  // [rows, n]
  std::vector<Set> sets_;
};

void bench_gemm(CudaBench& bench, const ExpertGemm& gemm, const MatrixSpec& spec) {
  ExpertBench experts(bench, gemm, spec);
  for (const std::int64_t tokens : {1, 8, 32, 128, 1024, 8192}) {
    experts.run(tokens, Routing::kUniform);
  }
  if (spec.format != Format::kNvfp4) return;
  for (const std::int64_t tokens : {128, 1024}) experts.run(tokens, Routing::kSkewed);
}

}  // namespace

void bench_cuda_moe(CudaBench& bench) {
  for (const ExpertGemm& gemm : flash()) bench_gemm(bench, gemm, testing::nvfp4_spec());
  for (const ExpertGemm& gemm : flash()) bench_gemm(bench, gemm, testing::mxfp4_spec());
  for (const ExpertGemm& gemm : pro()) bench_gemm(bench, gemm, testing::nvfp4_spec());
  for (const ExpertGemm& gemm : pro()) bench_gemm(bench, gemm, testing::mxfp4_spec());
}

}  // namespace dsv4::bench
