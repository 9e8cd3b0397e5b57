#include <bs/kernels/copy.h>
#include <bs/kernels/cuda/blas_matrix.h>
#include <bs/kernels/matmul.h>
#include <bs/kernels/strided.h>

namespace bs::cuda {

namespace {

/// x with matrices that cuBLAS can read; a copy where they are not, of what is not repeated.
Tensor readable(const Tensor& x) {
  if (blas_matrix(x)) return x;
  Tensor once = x;
  for (int axis = 0; axis < x.rank() - 2; ++axis)
    if (x.strides()[axis] == 0) once = once.slice(axis, 0, 1);
  return contiguous(once).expand(x.shape());
}

/// What cuBLAS reads its scale factors as: the type of the sums.
struct Scale {
  float in_f32;
  double in_f64;
  const void* pointer(DType dtype) const {
    return dtype == f64 ? static_cast<const void*>(&in_f64) : &in_f32;
  }
};

std::byte* element(const Tensor& x, int64_t index) {
  return static_cast<std::byte*>(x.data()) + index * static_cast<int64_t>(size_of(x.dtype()));
}

}  // namespace

void matmul(const Tensor& a_any, const Tensor& b_any, const Tensor& c, Stream stream) {
  const Tensor a = readable(a_any);
  const Tensor b = readable(b_any);
  const int lead = c.rank() - 2;
  const StridedLoop<3> batch(
      c.shape().slice(0, lead),
      {a.strides().slice(0, lead), b.strides().slice(0, lead), c.strides().slice(0, lead)});
  const BlasMatrix p = *blas_matrix(a);
  const BlasMatrix q = *blas_matrix(b);
  const cudaDataType_t type = blas_type(c.dtype());
  const cublasComputeType_t sums = blas_compute_type(c.dtype());
  const Scale one{1, 1};
  const Scale zero{0, 0};
  const void* const alpha = one.pointer(c.dtype());
  const void* const beta = zero.pointer(c.dtype());
  const cublasHandle_t handle = cublas_handle(stream);
  const int64_t m = c.size(-2), n = c.size(-1), k = a.size(-1);
  // Columns lead in cuBLAS, so it sees every matrix transposed: c^T = b^T a^T.
  for (int64_t i = 0; i < batch.numel(); i += batch.inner()) {
    const std::byte* const x = element(a, batch.offset(0, i));
    const std::byte* const y = element(b, batch.offset(1, i));
    std::byte* const z = element(c, batch.offset(2, i));
    if (batch.inner() == 1) {  // the call that may split the depth among blocks
      BS_CUBLAS_CHECK(cublasGemmEx_64(handle, q.operation, p.operation, n, m, k, alpha, y, type,
                                      q.leading, x, type, p.leading, beta, z, type, n, sums,
                                      CUBLAS_GEMM_DEFAULT));
    } else {
      BS_CUBLAS_CHECK(cublasGemmStridedBatchedEx_64(
          handle, q.operation, p.operation, n, m, k, alpha, y, type, q.leading,
          batch.inner_stride(1), x, type, p.leading, batch.inner_stride(0), beta, z, type, n,
          batch.inner_stride(2), batch.inner(), sums, CUBLAS_GEMM_DEFAULT));
    }
  }
}

}  // namespace bs::cuda
