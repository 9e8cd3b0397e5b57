#include <bs/kernels/cuda/block_sparse_matmul_kernels.cuh>

namespace bs::cuda::launch {

template void dsd(const float*, const float*, float*, const DsdProblem&, cudaStream_t);
template void sdd(const float*, const float*, float*, const SddProblem&, cudaStream_t);

}  // namespace bs::cuda::launch
