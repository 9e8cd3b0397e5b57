#include <bs/kernels/copy.h>
#include <bs/kernels/cuda/gemm/blas_matrix.h>
#include <bs/kernels/cuda/gemm/matmul_config.h>
#include <bs/kernels/cuda/gemm/matmul_description.h>
#include <bs/kernels/gemm_operation.h>
#include <bs/kernels/math_mode.h>
#include <bs/kernels/matmul.h>
#include <bs/kernels/strided.h>
#include <bs/lib/cuda/runtime.h>

#include <array>

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

/// Which operation multiplies: in which of the tiles f32 goes in parts, and how operands lie.
struct Form {
  DType dtype;
  size_t tile;
  bool a_rows, b_rows;
};

GemmDescription describe(const Form& form) {
  const auto layout = [](bool rows) {
    return rows ? MatrixLayout::row_major : MatrixLayout::column_major;
  };
  const auto batched = [](GemmDescription d) {
    d.swizzle = Swizzle::identity8;
    d.mode = GemmMode::batched;
    return d;
  };
  const MatrixLayout a = layout(form.a_rows), b = layout(form.b_rows);
  const GemmEpilogue epilogue(epilogue::accumulator());
  if (form.dtype != f32) return batched(describe_large_matmul(form.dtype, a, b, epilogue));
  constexpr Element e = Element::f32;
  const PartsTile& t = parts_tiles[form.tile];
  const MathInstruction math{{64, t.cols, 8}, e, e, e, OpClass::warpgroup, MathOperation::fast_f32};
  return batched(
      {.tile = {{t.rows, t.cols, 32}, t.stages, {t.rows / 16, 1, 1}, math, {t.cluster, 1}},
       .a = {e, a, 1},
       .b = {e, b, 1},
       .d = {e, MatrixLayout::row_major, 1},
       .epilogue = epilogue});
}

const GemmOperation& operation(const Form& form) {
  using Four = std::array<GemmOperation, 4>;
  const auto four = [](DType dtype, size_t tile) {
    const auto one = [&](bool a, bool b) { return GemmOperation(describe({dtype, tile, a, b})); };
    return new Four{one(false, false), one(false, true), one(true, false), one(true, true)};
  };
  static const std::array<const Four*, parts_tiles.size()> of_f32{four(f32, 0), four(f32, 1),
                                                                  four(f32, 2)};
  static const Four* const of_f16 = four(f16, 0);
  static const Four* const of_bf16 = four(bf16, 0);
  const Four& all = *(form.dtype == f32 ? of_f32[form.tile] : form.dtype == f16 ? of_f16 : of_bf16);
  return all[(form.a_rows ? 2U : 0U) + (form.b_rows ? 1U : 0U)];
}

/// Whether it was done; not where there is no memory for the parts of f32.
bool run(const GemmOperation& product, const GemmArguments& operands, bool in_parts) {
  try {
    product.run(operands);
  } catch (const OutOfMemory&) {
    if (!in_parts) throw;
    return false;
  }
  return true;
}

/// The last two axes of x, `batch` times at an even distance.
Tensor batch_of(const Tensor& x, int64_t batch, int64_t distance) {
  return x.as_strided({batch, x.size(-2), x.size(-1)},
                      {distance, x.strides()[-2], x.strides()[-1]});
}

/// Whether every line of x begins at a multiple of 128 bytes.
bool lines_aligned(const Tensor& x, int64_t leading, int64_t distance) {
  const auto aligned = [&](int64_t elements) {
    return elements * static_cast<int64_t>(size_of(x.dtype())) % 128 == 0;
  };
  return aligned(leading) && aligned(distance) && reinterpret_cast<uintptr_t>(x.data()) % 128 == 0;
}

MatmulProblem problem(const Tensor& a, const Tensor& b, const Tensor& c,
                      const StridedLoop<3>& batch) {
  const auto matrices = [&](int n) { return batch.inner_stride(n) == 0 ? 1 : batch.inner(); };
  const bool aligned = lines_aligned(a, blas_matrix(a)->leading, batch.inner_stride(0)) &&
                       lines_aligned(b, blas_matrix(b)->leading, batch.inner_stride(1)) &&
                       lines_aligned(c, c.size(-1), batch.inner_stride(2));
  return {.dtype = c.dtype(),
          .m = c.size(-2),
          .n = c.size(-1),
          .k = a.size(-1),
          .batch = batch.inner(),
          .a_matrices = matrices(0),
          .b_matrices = matrices(1),
          .lines_aligned = aligned};
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
  const bool one_batch = batch.inner() == batch.numel();  // not one of batches
  // Others go to the library, and need not be measured.
  const bool hopper = device_properties(c.device()).capability == 90;
  if (one_batch && hopper && !(c.dtype() == f32 && tf32_allowed())) {
    const MatmulProblem x = problem(a, b, c, batch);
    const Gpu& whole = gpu_of(c.device());
    const Gpu gpu = asks_for_memory(x, whole) ? gpu_now(c.device()) : whole;
    const MatmulPath path = choose_matmul(x, gpu);
    if (path != MatmulPath::library) {
      const auto all = [&](const Tensor& t, int n) {
        return batch_of(t, batch.inner(), batch.inner_stride(n));
      };
      const GemmOperation& product = operation({.dtype = x.dtype,
                                                .tile = parts_tile(x, gpu),
                                                .a_rows = p.operation == CUBLAS_OP_N,
                                                .b_rows = q.operation == CUBLAS_OP_N});
      if (run(product, {.a = all(a, 0), .b = all(b, 1), .d = all(c, 2)}, path == MatmulPath::parts))
        return;
    }
  }
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
      BS_CUBLAS_CHECK(cublas().gemm(handle, q.operation, p.operation, n, m, k, alpha, y, type,
                                    q.leading, x, type, p.leading, beta, z, type, n, sums,
                                    CUBLAS_GEMM_DEFAULT));
    } else {
      BS_CUBLAS_CHECK(cublas().gemm_batched(
          handle, q.operation, p.operation, n, m, k, alpha, y, type, q.leading,
          batch.inner_stride(1), x, type, p.leading, batch.inner_stride(0), beta, z, type, n,
          batch.inner_stride(2), batch.inner(), sums, CUBLAS_GEMM_DEFAULT));
    }
  }
}

}  // namespace bs::cuda
