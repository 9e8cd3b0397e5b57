#include <bs/kernels/cuda/block_sparse_matmul_kernels.cuh>

namespace bs::cuda::launch {

template void dsd(const double*, const double*, double*, const DsdProblem&, cudaStream_t);
template void sdd(const double*, const double*, double*, const SddProblem&, cudaStream_t);

}  // namespace bs::cuda::launch
