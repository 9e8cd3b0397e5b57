#include <bs/kernels/block_sparse_matmul.h>
#include <bs/kernels/cuda/block_sparse/block_sparse_matmul_dense.h>
#include <bs/kernels/cuda/block_sparse/block_sparse_matmul_tf32.h>
#include <bs/kernels/cuda/block_sparse/block_sparse_matmul_tiled.h>
#include <bs/kernels/cuda/block_sparse/block_sparse_matmul_warpgroup.h>

#include <cstdlib>

namespace bs::cuda {

namespace {

/// So that tests and measurements on any GPU see what others get.
bool portable_only() {
  static const bool only = std::getenv("BS_PORTABLE_PRODUCTS") != nullptr;
  return only;
}

}  // namespace

void dsd(const Tensor& values, const Tensor& b, const Tensor& c, const DsdProblem& p,
         Stream stream) {
  if (!portable_only() &&
      (dense_dsd(values, b, c, p, stream) || warpgroup_dsd(values, b, c, p, stream) ||
       tf32_dsd(values, b, c, p, stream)))
    return;
  tiled_dsd(values, b, c, p, stream);
}

void sdd(const Tensor& a, const Tensor& b, const Tensor& values, const SddProblem& p,
         Stream stream) {
  if (!portable_only() &&
      (dense_sdd(a, b, values, p, stream) || warpgroup_sdd(a, b, values, p, stream) ||
       tf32_sdd(a, b, values, p, stream)))
    return;
  tiled_sdd(a, b, values, p, stream);
}

}  // namespace bs::cuda
