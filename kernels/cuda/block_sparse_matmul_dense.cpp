#include <bs/kernels/block_sparse_convert.h>
#include <bs/kernels/cuda/block_sparse_matmul_config.h>
#include <bs/kernels/cuda/block_sparse_matmul_dense.h>
#include <bs/kernels/matmul.h>
#include <bs/lib/cuda/runtime.h>

namespace bs::cuda {

namespace {

/// Below this many multiplications neither way fills the GPU, and the lines of dense_is_faster()
/// are of large products.
constexpr double least_work = 1e10;

/// Seconds, of an H200: a copy's start and bytes, and multiplications by cuBLAS.
constexpr double copy_start = 4e-6, bytes_a_second = 3.3e12, products_a_second = 3.95e14;

bool pays(bool sampled, const Tensor& x, const LayoutView& v, int64_t free, int64_t products) {
  if ((x.dtype() != f16 && x.dtype() != bf16) || v.heads != 1 || products != 1) return false;
  const double blocks = static_cast<double>(v.rows) * v.cols, density = v.nnz / blocks;
  const double elements = blocks * v.block * v.block;
  const double work = elements * static_cast<double>(free);
  const double copy = copy_start + 2 * elements * (1 + density) / bytes_a_second;
  return work >= least_work &&
         dense_is_faster(sampled, v.block, density, copy * products_a_second / work) &&
         device_properties(x.device()).capability == 90;
}

/// The one matrix of a batch of one.
Tensor matrix(Tensor x) {
  while (x.rank() > 2) x = x.squeeze(0);
  return x;
}

Tensor dense_like(const LayoutView& v, const Tensor& x) {
  return Tensor::empty({int64_t{v.rows} * v.block, int64_t{v.cols} * v.block}, x.dtype(),
                       x.device());
}

Tensor one_batch(Tensor values) {
  while (values.rank() > 3) values = values.squeeze(0);
  return values;
}

}  // namespace

bool dense_dsd(const Tensor& values, const Tensor& b, const Tensor& c, const DsdProblem& p,
               Stream stream) {
  if (!pays(false, b, p.layout, p.n, p.batch.numel() * p.sum.numel())) return false;
  Tensor s = dense_like(p.layout, b);
  to_dense(one_batch(values), p.layout, s, stream);
  if (p.transposed) s = s.transpose(0, 1);
  const Tensor result = matrix(c);
  if (result.is_contiguous()) {
    matmul(s, matrix(b), result, stream);
  } else {
    matmul(matrix(b).transpose(0, 1), s.transpose(0, 1), result.transpose(0, 1), stream);
  }
  return true;
}

bool dense_sdd(const Tensor& a, const Tensor& b, const Tensor& values, const SddProblem& p,
               Stream stream) {
  if (!pays(true, a, p.layout, p.k, p.batch.numel() * p.sum.numel())) return false;
  const Tensor product = dense_like(p.layout, a);
  matmul(matrix(a), matrix(b), product, stream);
  to_sparse(product, p.layout, one_batch(values), stream);
  return true;
}

}  // namespace bs::cuda
