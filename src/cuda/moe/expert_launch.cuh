// expert_launch.cuh: from an op's params to the kernel that suits the number of tokens.
#pragma once

#include <algorithm>
#include <limits>

#include "cuda/errors.h"
#include "cuda/launch.h"
#include "cuda/moe/expert_epilogue.cuh"
#include "cuda/moe/expert_gemm.cuh"
#include "cuda/tensor_map.h"
#include "ops/moe.h"

namespace dsv4::cuda {

inline constexpr int kMaxExperts = 1024;  // their offsets lie in shared memory

inline Support supports_expert_gemm(const MatrixView& x, const PackedExperts& packed,
                                    int num_experts, const MutableMatrixView& out) {
  if (packed.data == nullptr && num_experts > 0) {
    return {false, "weights must be packed (ExpertPackParams)"};
  }
  if (num_experts > kMaxExperts) {
    return {false, fmt::format("{} experts, at most {}", num_experts, kMaxExperts)};
  }
  if (x.format != Format::kBf16) {
    return {false,
            fmt::format("x is {}, must be {}", to_string(x.format), to_string(Format::kBf16))};
  }
  if (x.cols == 0) return {false, "x has no columns"};
  if (x.row_stride % 8 != 0) {
    return {false, fmt::format("x.row_stride is {}, must be a multiple of 8", x.row_stride)};
  }
  if (x.rows >
      std::numeric_limits<std::uint32_t>::max() / 2 / std::max<std::int64_t>(1, x.row_stride)) {
    return {false,
            fmt::format("x has {} rows of {} bytes, more than 4 GiB", x.rows, 2 * x.row_stride)};
  }
  if (out.cols % 8 != 0 || out.row_stride % 8 != 0) {
    return {false,
            fmt::format("out has {} columns, {} from row to row, both must be multiples of 8",
                        out.cols, out.row_stride)};
  }
  return {};
}

inline ExpertGemmArgs expert_gemm_args(const MatrixView& x, const PackedExperts& packed,
                                       bool gate_and_up, int num_experts,
                                       const std::int32_t* expert_offsets,
                                       const MutableMatrixView& out) {
  const ExpertLayout layout =
      ExpertLayout::of(packed.format, packed.rows, packed.cols, gate_and_up);
  return {.packed = static_cast<const std::byte*>(packed.data),
          .expert_bytes = layout.expert_bytes(),
          .factors_offset = layout.factors_offset(),
          .slabs = static_cast<int>(layout.slabs),
          .chunks = static_cast<int>(layout.chunks),
          .x = static_cast<const std::byte*>(x.data),
          .x_row_bytes = static_cast<std::uint32_t>(2 * x.row_stride),
          .x_cols = static_cast<int>(x.cols),
          .expert_offsets = expert_offsets,
          .num_experts = num_experts,
          .out = out};
}

template <class Shape>
TokenMaps<Shape, TokenCopies::kTiles> token_maps(const ExpertGemmArgs& args) {
  using Maps = TokenMaps<Shape, TokenCopies::kTiles>;
  const MatrixView x = {.data = args.x,
                        .format = Format::kBf16,
                        .rows = args.out.rows,
                        .cols = args.x_cols,
                        .row_stride = args.x_row_bytes / 2};
  Maps maps;
  for (int i = 0; i < Maps::kCount; ++i) {
    maps.boxes[i] = swizzled_boxes(x, (i + 1) * Maps::kStep, Shape::kStageChunks);
  }
  return maps;
}

template <class Shape, int kQuantBlock, class Epilogue, TokenCopies kCopies>
void launch_shape(const char* name, const ExpertGemmArgs& args,
                  const TokenMaps<Shape, kCopies>& maps, cudaStream_t stream) {
  int device = 0, sms = 0;
  check_cuda(cudaGetDevice(&device), "ask for the current device");
  check_cuda(cudaDeviceGetAttribute(&sms, cudaDevAttrMultiProcessorCount, device),
             "ask for the number of SMs");
  // At most as many units as there are rows, and as full tiles and a rest for each expert.
  const std::int64_t tiles =
      std::min(args.out.rows, args.num_experts + args.out.rows / Shape::kMaxTile);
  const std::int64_t units = tiles * ceil_div(args.slabs, Shape::kWarpgroups);
  const auto ctas = static_cast<unsigned>(std::min<std::int64_t>(units, sms * Shape::kCtas));
  launch(name, expert_gemm<Shape, kQuantBlock, Epilogue, kCopies>,
         {.grid = ctas,
          .block = Shape::kThreads,
          .shared_bytes = expert_gemm_shared_bytes<Shape, kQuantBlock>(args.num_experts),
          .overlaps = true},
         stream, args, maps);
}

template <class Shape, int kQuantBlock, class Epilogue>
void launch_shape(const char* name, const ExpertGemmArgs& args, cudaStream_t stream) {
  if constexpr (Epilogue::kRowsAreInOrder) {
    // A box cannot end within a chunk's columns.
    if (args.x_cols % kChunkCols == 0) {
      return launch_shape<Shape, kQuantBlock, Epilogue, TokenCopies::kTiles>(
          name, args, token_maps<Shape>(args), stream);
    }
  }
  launch_shape<Shape, kQuantBlock, Epilogue, TokenCopies::kRows>(name, args, {}, stream);
}

template <template <class> class Epilogue, int kQuantBlock>
void launch_for_rows(const char* name, const ExpertGemmArgs& args, cudaStream_t stream) {
  with_shape_for(args.out.rows, args.num_experts, [&](auto shape) {
    using Shape = decltype(shape);
    launch_shape<Shape, kQuantBlock, Epilogue<Shape>>(name, args, stream);
  });
}

template <template <class> class Epilogue>
void launch_expert_gemm(const char* name, Format format, const ExpertGemmArgs& args,
                        cudaStream_t stream) {
  if (args.num_experts == 0 || args.out.empty()) return;
  for (const void* const data :
       std::initializer_list<const void*>{args.x, args.packed, args.out.data}) {
    require(reinterpret_cast<std::uintptr_t>(data) % 16 == 0, ErrorCode::kBadRequest,
            "{}: x.data, packed.data and out.data must be aligned to 16 bytes, one is {}", name,
            data);
  }
  if (format == Format::kNvfp4) {
    launch_for_rows<Epilogue, 16>(name, args, stream);
  } else {
    launch_for_rows<Epilogue, 32>(name, args, stream);
  }
}

}  // namespace dsv4::cuda
