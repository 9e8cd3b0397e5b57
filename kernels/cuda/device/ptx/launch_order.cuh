#pragma once
// What kernels say to the launches before and behind them in a stream (programmatic dependent
// launch, sm_90). Before sm_90 launches follow each other by themselves.

namespace bs::cuda::device {

/// What a kernel launched early calls before it touches memory: returns once all that the kernel
/// before wrote can be read.
__device__ inline void wait_for_previous_launch() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

/// Lets the kernel after this one begin, up to its wait, once all blocks of this one have.
__device__ inline void let_next_launch_begin() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}

}  // namespace bs::cuda::device
