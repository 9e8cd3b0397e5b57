#pragma once
/** @file What the steps of recurrent layers are launched with: products by cuBLAS, and kernels over
 *  elements between them. */
#include <bs/kernels/cuda/gemm/blas_matrix.h>
#include <bs/lib/cuda/launch.h>
#include <bs/kernels/cuda/device/tile/arithmetic.cuh>
#include <bs/kernels/cuda/early_launch.cuh>

namespace bs::cuda::recurrent {

using device::wide;

/// c (m x n, rows dense) = beta c + a (m x k) b, where b is (k x n), or its transpose is stored.
template <class T>
void product(cublasHandle_t handle, int64_t m, int64_t n, int64_t k, const T* a, const T* b,
             bool transposed, wide<T> beta, wide<T>* c) {
  using W = wide<T>;
  const W one = 1;
  const DType dtype = sizeof(T) == 8              ? f64
                      : sizeof(T) == 4            ? f32
                      : std::is_same_v<T, __half> ? f16
                                                  : bf16;
  const cudaDataType_t in = blas_type(dtype);
  const cudaDataType_t out = sizeof(W) == 8 ? CUDA_R_64F : CUDA_R_32F;
  BS_CUBLAS_CHECK(cublas().gemm(handle, transposed ? CUBLAS_OP_T : CUBLAS_OP_N, CUBLAS_OP_N, n, m,
                                k, &one, b, in, transposed ? k : n, a, in, k, &beta, c, out, n,
                                blas_compute_type(dtype), CUBLAS_GEMM_DEFAULT));
}

/// Launches a kernel over `count` elements. `early`: the launch before was a product, and the
/// kernel waits for it by itself.
template <class... Parameters, class... Arguments>
void launch_elements(void (*kernel)(Parameters...), int64_t count, bool early, cudaStream_t stream,
                     Arguments... arguments) {
  constexpr unsigned threads = 128;
  const auto blocks = static_cast<unsigned>(ceil_div(count, threads));
  launch_waiting(kernel, dim3(blocks), dim3(threads), 0, stream, early, arguments...);
}

/// Where the products of a sequence go, and in what form.
struct LstmQueue {
  cublasHandle_t handle;
  cudaStream_t stream;
  bool early;  ///< the device can begin a kernel before the one ahead has ended
};

inline LstmQueue queue_on(Stream stream) {
  return {cublas_handle(stream), native(stream),
          device_properties(stream.device()).capability >= 90};
}

}  // namespace bs::cuda::recurrent
