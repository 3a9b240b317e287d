// ggml's matrix products (llama.cpp's kernels) at the shapes of linear_bench.cc, on as many threads
// and against the same ceilings. Optional: build_ggml.sh says how.
//
// They compute less exactly than ours: activations are rounded to BF16, and for FP4 weights to
// 8-bit integers in blocks of 32, so that integer dot products do the work.
#include <fmt/format.h>
#include <ggml-alloc.h>
#include <ggml-backend.h>
#include <ggml-cpu.h>
#include <ggml.h>

#include <algorithm>
#include <cmath>
#include <memory>

#include "base/check.h"
#include "bench/bench.h"
#include "testing/generators.h"

namespace dsv4::bench {
namespace {

template <auto kFree>
struct Freer {
  template <class T>
  void operator()(T* object) const {
    kFree(object);
  }
};
using Context = std::unique_ptr<ggml_context, Freer<ggml_free>>;
using GgmlBuffer = std::unique_ptr<ggml_backend_buffer, Freer<ggml_backend_buffer_free>>;
using GgmlBackend = std::unique_ptr<ggml_backend, Freer<ggml_backend_free>>;
using GgmlThreads = std::unique_ptr<ggml_threadpool, Freer<ggml_threadpool_free>>;

Context new_context() {
  return Context(ggml_init({std::size_t{16} << 20, nullptr, /*no_alloc=*/true}));
}

// Where ggml keeps weights in the order that its kernels like best; null: it has no such place.
ggml_backend_buffer_type_t repacking_buffers(ggml_backend_t backend) {
  ggml_backend_dev_t device = ggml_backend_get_device(backend);
  const auto list =
      reinterpret_cast<ggml_backend_dev_get_extra_bufts_t>(ggml_backend_reg_get_proc_address(
          ggml_backend_dev_backend_reg(device), "ggml_backend_dev_get_extra_bufts"));
  if (list == nullptr) return nullptr;
  for (ggml_backend_buffer_type_t* type = list(device); type != nullptr && *type != nullptr;
       ++type) {
    if (std::string_view(ggml_backend_buft_name(*type)) == "CPU_REPACK") return *type;
  }
  return nullptr;
}

// `count` copies of one random matrix [n, k] and a product with m tokens.
class Product {
 public:
  Product(int num_threads, ggml_type type, bool repacked, std::int64_t n, std::int64_t k,
          std::int64_t m, std::int64_t count)
      : type_(type),
        n_(n),
        k_(k),
        m_(m),
        backend_(ggml_backend_cpu_init()),
        weights_context_(new_context()),
        context_(new_context()),
        x_(testing::normal_values(5, m * k)) {
    ggml_threadpool_params threads = ggml_threadpool_params_default(num_threads);
    threads_.reset(ggml_threadpool_new(&threads));
    ggml_backend_cpu_set_n_threads(backend_.get(), num_threads);
    ggml_backend_cpu_set_threadpool(backend_.get(), threads_.get());

    const std::vector<float> w = testing::normal_values(6, n * k, 0.05);
    codes_.resize(ggml_row_size(type, k) * static_cast<std::size_t>(n));
    if (type == GGML_TYPE_F32) {
      std::memcpy(codes_.data(), w.data(), codes_.size());
    } else {
      ggml_quantize_chunk(type, w.data(), codes_.data(), 0, n, k, nullptr);
    }
    for (std::int64_t i = 0; i < count; ++i) {
      weights_.push_back(ggml_new_tensor_2d(weights_context_.get(), type, k, n));
    }
    const ggml_backend_buffer_type_t plain = ggml_backend_get_default_buffer_type(backend_.get());
    weights_buffer_.reset(ggml_backend_alloc_ctx_tensors_from_buft(
        weights_context_.get(), repacked ? repacking_buffers(backend_.get()) : plain));
    DSV4_CHECK(weights_buffer_ != nullptr);
    for (ggml_tensor* weights : weights_) {
      ggml_backend_tensor_set(weights, codes_.data(), 0, codes_.size());
    }
    ggml_tensor* const x = ggml_new_tensor_2d(context_.get(), GGML_TYPE_F32, k, m);
    y_ = ggml_mul_mat(context_.get(), weights_[0], x);
    graph_ = ggml_new_graph(context_.get());
    ggml_build_forward_expand(graph_, y_);
    buffer_.reset(ggml_backend_alloc_ctx_tensors_from_buft(context_.get(), plain));
    DSV4_CHECK(buffer_ != nullptr);
    ggml_backend_tensor_set(x, x_.data(), 0, x_.size() * sizeof(float));
  }

  void call(std::int64_t call_idx) {
    y_->src[0] = weights_[static_cast<std::size_t>(call_idx) % weights_.size()];
    DSV4_CHECK(ggml_backend_graph_compute(backend_.get(), graph_) == GGML_STATUS_SUCCESS);
  }
  // Against FP64 sums of the decoded weights; activations may be off by half a step of 8 bits.
  std::string check() {
    call(0);
    const float largest = std::fabs(*std::max_element(
        x_.begin(), x_.end(), [](float a, float b) { return std::fabs(a) < std::fabs(b); }));
    std::vector<float> w(static_cast<std::size_t>(k_));
    for (std::int64_t i = 0; i < 40; ++i) {
      const std::int64_t token = i * 7 % m_;
      const std::int64_t row = i * 997 % n_;
      const std::byte* const codes = codes_.data() + row * ggml_row_size(type_, k_);
      if (type_ == GGML_TYPE_F32) {
        std::memcpy(w.data(), codes, w.size() * sizeof(float));
      } else {
        ggml_get_type_traits(type_)->to_float(codes, w.data(), k_);
      }
      double want = 0, magnitude = 0;
      for (std::int64_t j = 0; j < k_; ++j) {
        want += double{x_[static_cast<std::size_t>(token * k_ + j)]} * w[j];
        magnitude += std::fabs(w[j]);
      }
      float got = 0;
      ggml_backend_tensor_get(y_, &got, static_cast<std::size_t>(token * n_ + row) * sizeof(float),
                              sizeof(float));
      if (!(std::fabs(got - want) <= magnitude * largest / 254)) {
        return fmt::format("token {} row {}: {} instead of {}", token, row, got, want);
      }
    }
    return {};
  }
  double weight_bytes() const { return static_cast<double>(codes_.size()); }

 private:
  ggml_type type_;
  std::int64_t n_, k_, m_;
  GgmlThreads threads_;
  GgmlBackend backend_;
  Context weights_context_, context_;
  GgmlBuffer weights_buffer_, buffer_;
  std::vector<float> x_;
  std::vector<std::byte> codes_;
  std::vector<ggml_tensor*> weights_;
  ggml_tensor* y_;
  ggml_cgraph* graph_;
};

}  // namespace

void bench_ggml(Bench& bench) {
  constexpr std::int64_t kN = 4096, kK = 4096;
  ggml_log_set([](ggml_log_level, const char*, void*) {}, nullptr);
  struct Row {
    const char* label;
    ggml_type type;
    bool repacked;
  };
  for (const Row& row :
       {Row{"F32", GGML_TYPE_F32, false}, Row{"BF16", GGML_TYPE_BF16, false},
        Row{"MXFP4", GGML_TYPE_MXFP4, false}, Row{"MXFP4rep", GGML_TYPE_MXFP4, true},
        Row{"NVFP4", GGML_TYPE_NVFP4, false}}) {
    for (const std::int64_t m : {1, 4, 16, 256}) {
      Benchmark b{"ggml", fmt::format("{}x{}", kN, kK), row.label, m};
      if (!bench.wants(b)) continue;
      const auto bytes = static_cast<double>(ggml_row_size(row.type, kK)) * kN;
      const auto count = static_cast<std::int64_t>(
          std::max(1.0, static_cast<double>(bench.options().bytes) / bytes));
      Product product(bench.backend().num_threads(), row.type, row.repacked, kN, kK, m, count);
      b.bytes = product.weight_bytes() + 4.0 * static_cast<double>(m * (kN + kK));
      b.flops = 2.0 * static_cast<double>(m * kN * kK);
      b.check = [&] { return product.check(); };
      b.call = [&](std::int64_t call_idx) { product.call(call_idx); };
      bench.run(b);
    }
  }
}

}  // namespace dsv4::bench
