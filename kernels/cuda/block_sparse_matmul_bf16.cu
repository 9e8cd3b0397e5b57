#include <bs/kernels/cuda/block_sparse_matmul_kernels.cuh>

namespace bs::cuda::launch {

template void dsd(const __nv_bfloat16*, const __nv_bfloat16*, __nv_bfloat16*, const DsdProblem&,
                  cudaStream_t);
template void sdd(const __nv_bfloat16*, const __nv_bfloat16*, __nv_bfloat16*, const SddProblem&,
                  cudaStream_t);

}  // namespace bs::cuda::launch
