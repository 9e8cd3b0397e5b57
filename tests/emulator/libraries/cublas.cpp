// Stands in for cuBLAS: products by naive loops on the host, in double.
#include <bs/lib/half.h>
#include <cublas_v2.h>

#include <bit>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <deque>

namespace {

/// f(pointer of the type's elements).
template <class F>
void with_elements(const void* data, cudaDataType type, const F& f) {
  switch (type) {
    case CUDA_R_64F:
      return f(static_cast<const double*>(data));
    case CUDA_R_32F:
      return f(static_cast<const float*>(data));
    case CUDA_R_16F:
      return f(static_cast<const bs::half*>(data));
    case CUDA_R_16BF:
      return f(static_cast<const bs::bfloat16*>(data));
    default:
      std::fprintf(stderr, "emulator: cuBLAS of type %d\n", static_cast<int>(type));
      std::abort();
  }
}

/// f32 to 10 bits behind the point, as tensor cores take it.
double rounded_to_tf32(float value) {
  const auto bits = std::bit_cast<uint32_t>(value);
  const bool is_finite = (bits & 0x7f800000) != 0x7f800000;
  return static_cast<double>(std::bit_cast<float>(is_finite ? (bits + 0x1000) & 0xffffe000 : bits));
}

/// A matrix whose columns lie one after the other, or its transpose.
struct Matrix {
  const void* data;
  cudaDataType type;
  int64_t leading, first;
  bool is_transposed, is_tf32;

  double at(int64_t row, int64_t column) const {
    const int64_t place = first + (is_transposed ? column + row * leading : row + column * leading);
    double value = 0;
    with_elements(data, type, [&](const auto* all) {
      if constexpr (sizeof *all == 2) {
        value = static_cast<double>(static_cast<float>(all[place]));
      } else {
        value = static_cast<double>(all[place]);
      }
    });
    if (is_tf32) value = rounded_to_tf32(static_cast<float>(value));
    return value;
  }
  void set(int64_t row, int64_t column, double value) const {
    with_elements(data, type, [&]<class T>(const T* all) {
      T& to = const_cast<T*>(all)[first + row + column * leading];
      if constexpr (sizeof(T) == 2) {
        to = static_cast<T>(static_cast<float>(value));
      } else {
        to = static_cast<T>(value);
      }
    });
  }
};

double number(const void* scalar, cublasComputeType_t type) {
  const bool is_double = type == CUBLAS_COMPUTE_64F || type == CUBLAS_COMPUTE_64F_PEDANTIC;
  return is_double ? *static_cast<const double*>(scalar)
                   : static_cast<double>(*static_cast<const float*>(scalar));
}

/// c = alpha a b + beta c; of beta 0, c is not read.
struct Product {
  int64_t m, n, k;
  double alpha, beta;
  Matrix a, b, c;

  void run() const {
    for (int64_t column = 0; column < n; ++column)
      for (int64_t row = 0; row < m; ++row) {
        double sum = 0;
        for (int64_t i = 0; i < k; ++i) sum += a.at(row, i) * b.at(i, column);
        const double before = beta == 0 ? 0 : beta * c.at(row, column);
        c.set(row, column, alpha * sum + before);
      }
  }
};

/// In the order of a stream, which may be captured: then it runs again and again, so it is kept.
void enqueue(const Product& product, cudaStream_t stream) {
  static auto* const kept = new std::deque<Product>;
  kept->push_back(product);
  const auto run = [](void* data) { static_cast<const Product*>(data)->run(); };
  if (cudaLaunchHostFunc(stream, run, &kept->back()) == cudaSuccess) return;
  std::fputs("emulator: a product of cuBLAS cannot be enqueued\n", stderr);
  std::abort();
}

struct Handle {
  cudaStream_t stream = nullptr;
  bool is_tf32 = false;
};

}  // namespace

extern "C" {

cublasStatus_t cublasCreate_v2(cublasHandle_t* handle) {
  *handle = reinterpret_cast<cublasHandle_t>(new Handle);
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasSetStream_v2(cublasHandle_t handle, cudaStream_t stream) {
  reinterpret_cast<Handle*>(handle)->stream = stream;
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasSetWorkspace_v2(cublasHandle_t, void*, size_t) {
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasSetMathMode(cublasHandle_t handle, cublasMath_t mode) {
  reinterpret_cast<Handle*>(handle)->is_tf32 = (mode & CUBLAS_TF32_TENSOR_OP_MATH) != 0;
  return CUBLAS_STATUS_SUCCESS;
}
const char* cublasGetStatusString(cublasStatus_t) { return "a status of the emulator's"; }

cublasStatus_t cublasGemmStridedBatchedEx_64(
    cublasHandle_t handle, cublasOperation_t turn_a, cublasOperation_t turn_b, int64_t m, int64_t n,
    int64_t k, const void* alpha, const void* a, cudaDataType type_a, int64_t leading_a,
    long long stride_a, const void* b, cudaDataType type_b, int64_t leading_b, long long stride_b,
    const void* beta, void* c, cudaDataType type_c, int64_t leading_c, long long stride_c,
    int64_t count, cublasComputeType_t type, cublasGemmAlgo_t) {
  const bool rounds = type == CUBLAS_COMPUTE_32F_FAST_TF32 ||
                      (type == CUBLAS_COMPUTE_32F && reinterpret_cast<Handle*>(handle)->is_tf32);
  const bool is_tf32 = rounds && type_a == CUDA_R_32F;
  for (int64_t i = 0; i < count; ++i)
    enqueue({m,
             n,
             k,
             number(alpha, type),
             number(beta, type),
             {a, type_a, leading_a, i * stride_a, turn_a != CUBLAS_OP_N, is_tf32},
             {b, type_b, leading_b, i * stride_b, turn_b != CUBLAS_OP_N, is_tf32},
             {c, type_c, leading_c, i * stride_c, false, false}},
            reinterpret_cast<const Handle*>(handle)->stream);
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasGemmEx_64(cublasHandle_t handle, cublasOperation_t turn_a,
                               cublasOperation_t turn_b, int64_t m, int64_t n, int64_t k,
                               const void* alpha, const void* a, cudaDataType type_a,
                               int64_t leading_a, const void* b, cudaDataType type_b,
                               int64_t leading_b, const void* beta, void* c, cudaDataType type_c,
                               int64_t leading_c, cublasComputeType_t type,
                               cublasGemmAlgo_t algorithm) {
  return cublasGemmStridedBatchedEx_64(handle, turn_a, turn_b, m, n, k, alpha, a, type_a, leading_a,
                                       0, b, type_b, leading_b, 0, beta, c, type_c, leading_c, 0, 1,
                                       type, algorithm);
}

}  // extern "C"
