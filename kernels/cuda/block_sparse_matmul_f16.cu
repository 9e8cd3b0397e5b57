#include <bs/kernels/cuda/block_sparse_matmul_kernels.cuh>

namespace bs::cuda::launch {

template void dsd(const __half*, const __half*, __half*, const DsdProblem&, cudaStream_t);
template void sdd(const __half*, const __half*, __half*, const SddProblem&, cudaStream_t);

}  // namespace bs::cuda::launch
