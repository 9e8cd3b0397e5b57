#include <bs/kernels/block_sparse_matmul.h>
#include <bs/kernels/cuda/block_sparse_matmul_dense.h>
#include <bs/kernels/cuda/block_sparse_matmul_tiled.h>
#include <bs/kernels/cuda/block_sparse_matmul_warpgroup.h>

namespace bs::cuda {

void dsd(const Tensor& values, const Tensor& b, const Tensor& c, const DsdProblem& p,
         Stream stream) {
  if (dense_dsd(values, b, c, p, stream)) return;
  if (!warpgroup_dsd(values, b, c, p, stream)) tiled_dsd(values, b, c, p, stream);
}

void sdd(const Tensor& a, const Tensor& b, const Tensor& values, const SddProblem& p,
         Stream stream) {
  if (dense_sdd(a, b, values, p, stream)) return;
  if (!warpgroup_sdd(a, b, values, p, stream)) tiled_sdd(a, b, values, p, stream);
}

}  // namespace bs::cuda
