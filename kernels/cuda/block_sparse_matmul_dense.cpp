#include <bs/kernels/block_sparse_convert.h>
#include <bs/kernels/cuda/block_sparse_matmul_config.h>
#include <bs/kernels/cuda/block_sparse_matmul_dense.h>
#include <bs/kernels/matmul.h>
#include <bs/lib/cuda/runtime.h>

namespace bs::cuda {

namespace {

/// Below this many multiplications the copy takes longer than it saves.
constexpr double least_work = 1e10;

bool pays(bool sampled, const Tensor& x, const LayoutView& v, int64_t free, int64_t products) {
  const double blocks = static_cast<double>(v.rows) * v.cols;
  const double work = blocks * v.block * v.block * static_cast<double>(free);
  return (x.dtype() == f16 || x.dtype() == bf16) && v.heads == 1 && products == 1 &&
         work >= least_work && dense_is_faster(sampled, v.block, v.nnz / blocks) &&
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
