#include <bs/kernels/binary.h>
#include <bs/kernels/copy.h>
#include <bs/kernels/cuda/gemm/blas_matrix.h>
#include <bs/kernels/linear.h>
#include <bs/kernels/matmul.h>
#include <bs/lib/kept.h>

#include <bit>

namespace bs::cuda {

namespace {

constexpr size_t most_workspace = size_t{32} << 20;

/// All that the choice of an algorithm depends on.
struct Problem {
  int device;
  DType dtype;
  cublasComputeType_t sums;
  int64_t rows, in, out;
  BlasMatrix x, weight;
  uint32_t x_alignment, weight_alignment;

  bool operator==(const Problem&) const = default;
};

struct Choice {
  bool possible = false;
  cublasLtMatmulAlgo_t algorithm{};
  size_t workspace = 0;
};

/// The largest power of two, up to 256, that divides the address.
uint32_t alignment(const Tensor& x) {
  const auto address = reinterpret_cast<uintptr_t>(x.data()) | 256U;
  return uint32_t{1} << std::countr_zero(address);
}

/// y^T = weight x^T + bias in the terms of cuBLASLt, for which columns lead.
struct Description {
  cublasLtMatmulDescOpaque_t product{};
  cublasLtMatrixLayoutOpaque_t weight{}, x{}, y{};

  Description(const Problem& p, const void* bias) {
    const cudaDataType_t type = blas_type(p.dtype);
    BS_CUBLAS_CHECK(cublas_lt().make_product(&product, sizeof product, p.sums, CUDA_R_32F));
    // The weight is multiplied as its transpose, which cancels the one that cuBLAS sees.
    set(CUBLASLT_MATMUL_DESC_TRANSA, p.weight.operation == CUBLAS_OP_N ? CUBLAS_OP_T : CUBLAS_OP_N);
    set(CUBLASLT_MATMUL_DESC_TRANSB, p.x.operation);
    set(CUBLASLT_MATMUL_DESC_EPILOGUE, CUBLASLT_EPILOGUE_BIAS);
    set(CUBLASLT_MATMUL_DESC_BIAS_POINTER, bias);
    layout(weight, type, p.out, p.in, p.weight);
    layout(x, type, p.rows, p.in, p.x);
    BS_CUBLAS_CHECK(cublas_lt().make_layout(&y, sizeof y, type, static_cast<uint64_t>(p.out),
                                            static_cast<uint64_t>(p.rows), p.out));
  }

 private:
  template <class T>
  void set(cublasLtMatmulDescAttributes_t attribute, const T& value) {
    BS_CUBLAS_CHECK(cublas_lt().set_product(&product, attribute, &value, sizeof value));
  }
  static void layout(cublasLtMatrixLayoutOpaque_t& to, cudaDataType_t type, int64_t rows,
                     int64_t columns, const BlasMatrix& m) {
    const bool dense_rows = m.operation == CUBLAS_OP_N;
    BS_CUBLAS_CHECK(cublas_lt().make_layout(
        &to, sizeof to, type, static_cast<uint64_t>(dense_rows ? columns : rows),
        static_cast<uint64_t>(dense_rows ? rows : columns), m.leading));
  }
};

struct Preference {
  cublasLtMatmulPreferenceOpaque_t value{};

  explicit Preference(const Problem& p) {
    BS_CUBLAS_CHECK(cublas_lt().make_preference(&value, sizeof value));
    set(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, most_workspace);
    set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, p.weight_alignment);
    set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, p.x_alignment);
  }

 private:
  template <class T>
  void set(cublasLtMatmulPreferenceAttributes_t attribute, const T& to) {
    BS_CUBLAS_CHECK(cublas_lt().set_preference(&value, attribute, &to, sizeof to));
  }
};

/// The algorithm that cuBLASLt's heuristic names first; asking takes longer than a small product.
Kept<Choice> choose(cublasLtHandle_t handle, const Problem& problem, Description& d) {
  thread_local Cache choices(256);
  return choices.get<Choice>(problem, [&] {
    Preference preference(problem);
    cublasLtMatmulHeuristicResult_t result{};
    int count = 0;
    const cublasStatus_t status = cublas_lt().choose(handle, &d.product, &d.weight, &d.x, &d.y,
                                                     &d.y, &preference.value, 1, &result, &count);
    const bool possible = status == CUBLAS_STATUS_SUCCESS && count > 0;
    return possible ? Choice{true, result.algo, result.workspaceSize} : Choice{};
  });
}

/// y = x weight^T + bias in one kernel; false where cuBLASLt has none.
bool fused(const Tensor& x, const Tensor& weight, const Tensor& bias, const Tensor& y,
           Stream stream) {
  const auto p = blas_matrix(x);
  const auto q = blas_matrix(weight);
  if (!p || !q || y.dtype() == f64) return false;
  const Tensor vector = contiguous(bias);
  if (alignment(vector) < 16) return false;
  const Problem problem{stream.device().index(),
                        y.dtype(),
                        blas_compute_type(y.dtype()),
                        y.size(0),
                        x.size(1),
                        y.size(1),
                        *p,
                        *q,
                        alignment(x),
                        alignment(weight)};
  Description d(problem, vector.data());
  // A cuBLAS handle is one of cuBLASLt too.
  const auto handle = reinterpret_cast<cublasLtHandle_t>(cublas_handle(stream));
  const Kept<Choice> kept = choose(handle, problem, d);
  const Choice& choice = *kept;
  if (!choice.possible) return false;
  const Tensor workspace =
      Tensor::empty({static_cast<int64_t>(choice.workspace)}, u8, stream.device());
  const float one = 1;
  const float zero = 0;
  BS_CUBLAS_CHECK(cublas_lt().multiply(handle, &d.product, &one, weight.data(), &d.weight, x.data(),
                                       &d.x, &zero, y.data(), &d.y, y.data(), &d.y,
                                       &choice.algorithm, workspace.data(), choice.workspace,
                                       static_cast<cudaStream_t>(stream.handle())));
  return true;
}

}  // namespace

void linear(const Tensor& x, const Tensor& weight, const Tensor& bias, const Tensor& y,
            Stream stream) {
  if (bias.defined() && fused(x, weight, bias, y, stream)) return;
  matmul(x, weight.transpose(0, 1), y, stream);
  if (bias.defined()) add(y, bias.expand(y.shape()), y, stream);
}

}  // namespace bs::cuda
