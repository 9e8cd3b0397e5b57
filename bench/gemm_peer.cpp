#include <bs/bench/gemm_peer.h>
#include <bs/kernels/matmul.h>
#if BS_WITH_CUDA
#include <bs/kernels/cuda/gemm/blas_matrix.h>
#include <cublasLt.h>
#endif

#include <memory>

namespace bs::bench {

#if BS_WITH_CUDA
namespace {

/// Types of a plan: of the operands, the result, the sums and the scale factors.
struct Types {
  cudaDataType_t operands, result, scale;
  cublasComputeType_t sums;

  Types(Element element, DType d)
      : operands(cuda::blas_type(d)),
        result(cuda::blas_type(d)),
        scale(d == f64 ? CUDA_R_64F : CUDA_R_32F),
        sums(cuda::blas_compute_type(d)) {
    if (element == Element::e4m3) operands = CUDA_R_8F_E4M3;
    if (element == Element::e5m2) operands = CUDA_R_8F_E5M2;
    if (element != Element::i8) return;
    operands = CUDA_R_8I;
    result = scale = CUDA_R_32I;
    sums = CUBLAS_COMPUTE_32I;
  }
};

/// A product planned once.
class Plan {
 public:
  Plan(const Tensor& a, const Tensor& b, const Tensor& d, Element operands)
      : a_(a), b_(b), d_(d), workspace_(Tensor::empty({workspace_bytes}, u8, d.device())) {
    const cuda::BlasMatrix p = *cuda::blas_matrix(a), q = *cuda::blas_matrix(b);
    const Types types(operands, d.dtype());
    BS_CUBLAS_CHECK(cublasLtCreate(&handle_));
    BS_CUBLAS_CHECK(cublasLtMatmulDescCreate(&operation_, types.sums, types.scale));
    // Columns lead in cuBLAS, so it sees every matrix transposed: d^T = b^T a^T.
    set(CUBLASLT_MATMUL_DESC_TRANSA, q.operation);
    set(CUBLASLT_MATMUL_DESC_TRANSB, p.operation);
    if (size_of(operands) == 1 && operands != Element::i8)
      set(CUBLASLT_MATMUL_DESC_FAST_ACCUM, int8_t{1});
    const auto layout = [&](cublasLtMatrixLayout_t& out, const Tensor& x, cudaDataType_t type,
                            bool straight, int64_t leading) {
      const auto rows = static_cast<uint64_t>(x.size(straight ? 1 : 0));
      const auto columns = static_cast<uint64_t>(x.size(straight ? 0 : 1));
      BS_CUBLAS_CHECK(cublasLtMatrixLayoutCreate(&out, type, rows, columns, leading));
    };
    layout(x_, b, types.operands, q.operation == CUBLAS_OP_N, q.leading);
    layout(y_, a, types.operands, p.operation == CUBLAS_OP_N, p.leading);
    layout(z_, d, types.result, true, d.size(1));
    choose();
  }
  ~Plan() {
    cublasLtMatrixLayoutDestroy(x_);
    cublasLtMatrixLayoutDestroy(y_);
    cublasLtMatrixLayoutDestroy(z_);
    cublasLtMatmulDescDestroy(operation_);
    cublasLtDestroy(handle_);
  }
  Plan(const Plan&) = delete;
  Plan& operator=(const Plan&) = delete;

  void run() const {
    const float one = 1;
    const double one64 = 1, zero = 0;  // a zero of any type
    const int32_t one32 = 1;
    const void* alpha = d_.dtype() == f64   ? static_cast<const void*>(&one64)
                        : d_.dtype() == i32 ? static_cast<const void*>(&one32)
                                            : &one;
    BS_CUBLAS_CHECK(cublasLtMatmul(
        handle_, operation_, alpha, b_.data(), x_, a_.data(), y_, &zero, d_.data(), z_, d_.data(),
        z_, &algorithm_, workspace_.data(), static_cast<size_t>(workspace_bytes),
        static_cast<cudaStream_t>(current_stream(d_.device()).handle())));
  }

 private:
  static constexpr int64_t workspace_bytes = 64 << 20;

  template <class T>
  void set(cublasLtMatmulDescAttributes_t attribute, T value) {
    BS_CUBLAS_CHECK(cublasLtMatmulDescSetAttribute(operation_, attribute, &value, sizeof value));
  }
  void choose() {
    cublasLtMatmulPreference_t preference = nullptr;
    BS_CUBLAS_CHECK(cublasLtMatmulPreferenceCreate(&preference));
    const auto most = static_cast<size_t>(workspace_bytes);
    BS_CUBLAS_CHECK(cublasLtMatmulPreferenceSetAttribute(
        preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &most, sizeof most));
    cublasLtMatmulHeuristicResult_t found{};
    int count = 0;
    BS_CUBLAS_CHECK(cublasLtMatmulAlgoGetHeuristic(handle_, operation_, x_, y_, z_, z_, preference,
                                                   1, &found, &count));
    cublasLtMatmulPreferenceDestroy(preference);
    BS_CHECK(count == 1, "bench: cuBLASLt has no algorithm for a {}, b {}", a_.shape(), b_.shape());
    algorithm_ = found.algo;
  }

  Tensor a_, b_, d_, workspace_;
  cublasLtHandle_t handle_ = nullptr;
  cublasLtMatmulDesc_t operation_ = nullptr;
  cublasLtMatrixLayout_t x_ = nullptr, y_ = nullptr, z_ = nullptr;
  cublasLtMatmulAlgo_t algorithm_{};
};

}  // namespace
#endif

Work gemm_peer(const Tensor& a, const Tensor& b, const Tensor& d, Element operands) {
#if BS_WITH_CUDA
  if (d.device().is_cuda())
    return [plan = std::make_shared<Plan>(a, b, d, operands)] { plan->run(); };
#endif
  BS_CHECK(size_of(operands) > 1, "bench: no product of {} on the CPU to compare with", operands);
  return [a, b, d] { copy_bytes(matmul(a, b), d); };
}

}  // namespace bs::bench
