// expert_gemm.cuh: the kernel of the expert GEMMs: persistent CTAs of producers and consumers over
// the units that the expert offsets give.
#pragma once

#include "cuda/device/dependent_launch.h"
#include "cuda/moe/expert_consumer.cuh"
#include "cuda/moe/expert_tile_producer.cuh"

namespace dsv4::cuda {

template <class Shape, int kQuantBlock, class Epilogue, TokenCopies kCopies>
__global__ void __launch_bounds__(Shape::kThreads, Shape::kCtas)
    expert_gemm(const __grid_constant__ ExpertGemmArgs args,
                const __grid_constant__ TokenMaps<Shape, kCopies> maps) {
  extern __shared__ std::byte dynamic[];
  __shared__ ExpertShared<Shape> shared;
  __shared__ typename Epilogue::Shared epilogue_shared;
  std::byte* const stages = dynamic + (-shared_address(dynamic) & 1023);
  int* const counts =
      reinterpret_cast<int*>(stages + Shape::kStages * stage_bytes<Shape, kQuantBlock>());
  const ExpertUnits units{counts, counts + args.num_experts};
  if (threadIdx.x == 0) {
    for (int i = 0; i < Shape::kStages; ++i) {
      ::cuda::ptx::mbarrier_init(
          &shared.full[i], kCopies == TokenCopies::kRows ? Shape::kProducerWarps * 32 + 1 : 1);
      ::cuda::ptx::mbarrier_init(&shared.empty[i], Shape::kWarpgroups * 4);
    }
    ::cuda::ptx::fence_mbarrier_init(::cuda::ptx::sem_release, ::cuda::ptx::scope_cluster);
  }
  // Of several CTAs an SM those that start early would fill the SMs that are done first, neighbours
  // on one, and the first ones have more units.
  if constexpr (Shape::kCtas == 1) griddepcontrol_launch_dependents();
  griddepcontrol_wait();
  count_units<Shape>(args, units);  // ends with a barrier
  // By way of a shuffle the compiler knows that a warp does not part here, and may keep what its
  // threads share in uniform registers: without, decoding takes a tenth more instructions.
  const int warp = __shfl_sync(~0u, threadIdx.x / 32, 0);
  if (warp >= Shape::kWarpgroups * 4) {
    if constexpr (Shape::kProducerRegisters > 0) setmaxnreg_dec<Shape::kProducerRegisters>();
    const int producer = warp - Shape::kWarpgroups * 4;
    if constexpr (kCopies == TokenCopies::kRows) {
      ExpertProducer<Shape, kQuantBlock>(args, shared, stages, producer).run(units);
    } else if (producer == 0) {
      ExpertTileProducer<Shape, kQuantBlock>(args, maps, shared, stages).run(units);
    }
  } else {
    if constexpr (Shape::kConsumerRegisters > 0) setmaxnreg_inc<Shape::kConsumerRegisters>();
    ExpertConsumer<Shape, kQuantBlock, Epilogue, kCopies>(args, shared, stages)
        .run(Epilogue{epilogue_shared});
  }
}

// Dynamic shared memory of a CTA.
template <class Shape, int kQuantBlock>
int expert_gemm_shared_bytes(int num_experts) {
  return 1024 + Shape::kStages * stage_bytes<Shape, kQuantBlock>() + (2 * num_experts + 1) * 4;
}

}  // namespace dsv4::cuda
