#include <bs/kernels/cuda/block_sparse/block_sparse_reach.h>
#include <bs/kernels/cuda/block_sparse/operand_vectors.h>
#include <bs/kernels/cuda/block_sparse/turned_operand.h>
#include <bs/kernels/cuda/block_sparse/warpgroup_sdd_operands.h>

namespace bs::cuda {

namespace {

/// The reach of dsd with a B that begins where `b` does.
Reach reach_of(const Tensor& values, const Tensor& b, const Tensor& c, const DsdProblem& p) {
  const int block = p.layout.block, vector = vector_of(b.dtype()), line = 8 * vector;
  const bool along_k = p.b.col != 1, single = b.dtype() == f32;
  const int64_t m = int64_t{p.block_rows()} * block;
  Reach reach;
  reach.vectors = aligned_to_16(values) && steps_in(p.batch, 0, vector) &&
                  steps_in(p.sum, 0, vector) && aligned_to_16(b) && steps_in(p.batch, 1, vector) &&
                  steps_in(p.sum, 1, vector) &&
                  whole_vectors(p.b, !along_k, along_k ? p.k() : p.n, vector);
  const Axes axes(p.batch, p.sum);
  reach.copy_engine = block >= 16 && axes.fit(3) && axes.dense(p.batch, 2, m * p.n) &&
                      fits_int(values.numel() / block) && aligned_to_16(c);
  if (!reach.copy_engine) return reach;
  const auto strides = axes.strides(p.batch, 1, p.sum, 1);
  const bool boxes = !along_k && p.n % line == 0 && strides[2] == 0;
  device::BatchSteps steps{};
  DenseMap map = along_k ? DenseMap(b, p.k(), p.n, p.b.col, line, 1)
                         : DenseMap(b, boxes ? line : p.n, p.k(), p.b.row, line, 1);
  if (boxes) map.add(p.n / line, line);
  map.add_axes(axes, strides, boxes ? 2 : 3, steps);
  DenseMap result =
      p.c.col != 1 ? DenseMap(c, m, p.n, p.c.col, line, 1) : DenseMap(c, p.n, m, p.c.row, line, 1);
  result.add(p.batch.numel(), m * p.n);
  reach.copy_engine = map.fit && aligned_to_16(values) && (single || result.fit);
  return reach;
}

bool reaches(const SddOperand& o, const SddProblem& p, const Axes& axes) {
  device::BatchSteps steps{};
  return o.map(p, axes, p.layout.block, 8 * vector_of(o.x.dtype()), steps).fit;
}

Reach reach_of(const Tensor& a, const Tensor& b, const Tensor& values, const SddProblem& p) {
  const int block = p.layout.block, vector = vector_of(a.dtype());
  const int64_t height = int64_t{p.layout.rows} * block, width = int64_t{p.layout.cols} * block;
  const bool a_along = p.a.col == 1, b_along = p.b.col != 1;
  Reach reach;
  reach.vectors =
      aligned_to_16(a) && steps_in(p.batch, 0, vector) && steps_in(p.sum, 0, vector) &&
      p.a_head % vector == 0 && whole_vectors(p.a, a_along, a_along ? p.k : height, vector) &&
      aligned_to_16(b) && steps_in(p.batch, 1, vector) && steps_in(p.sum, 1, vector) &&
      p.b_head % vector == 0 && whole_vectors(p.b, !b_along, b_along ? p.k : width, vector);
  const Axes axes(p.batch, p.sum);
  const int64_t size = int64_t{p.layout.nnz} * block * block;
  reach.copy_engine = block >= 16 && axes.fit(2) && axes.dense(p.batch, 2, size) &&
                      fits_int(values.numel() / block) && aligned_to_16(values) &&
                      reaches(SddOperand::left(a, p), p, axes) &&
                      reaches(SddOperand::right(b, p), p, axes);
  return reach;
}

/// Whether dense products of 16 bits can take or leave a matrix: lines of either axis that begin at
/// multiples of 16 bytes.
bool lines_aligned(const MatrixStrides& strides, const Tensor& x) {
  return (strides.col == 1 ? strides.row : strides.col) % 8 == 0 && aligned_to_16(x);
}
/// The same of one that is not repeated.
bool lines_apart(const MatrixStrides& strides, const Tensor& x) {
  return lines_aligned(strides, x) &&
         (strides.col == 1 ? strides.row >= x.size(-1) : strides.col >= x.size(-2));
}

}  // namespace

DsdShape dsd_shape(const Tensor& values, const Tensor& b, const Tensor& c, const DsdProblem& p) {
  DsdShape x{.factors = factors_of(b.dtype(), p.tf32),
             .transposed = p.transposed,
             .n = p.n,
             .batch = p.batch.numel(),
             .terms = p.sum.numel(),
             .sums_heads = p.sums_heads(),
             .b_along_k = p.b.col != 1,
             .c_by_columns = p.c.col != 1,
             .turnable = short_lines(p, b),
             .epilogue = p.epilogue != nullptr};
  // What is reduced is reduced once.
  x.dense_epilogue = b.dtype() != f32 && p.epilogue && p.epilogue->reductions.empty() &&
                     lines_aligned(p.b, b) && lines_aligned(p.c, c);
  x.lying = reach_of(values, b, c, p);
  if (!x.turnable) return x;
  DsdProblem turned = p;
  turned.b = {.row = p.n, .col = 1};
  // The copy begins at a multiple of 16 bytes, as the values do where any kernel asks for that.
  x.turned = reach_of(values, values, c, turned);
  return x;
}

SddShape sdd_shape(const Tensor& a, const Tensor& b, const Tensor& values, const SddProblem& p) {
  SddShape x{.factors = factors_of(a.dtype(), p.tf32),
             .k = p.k,
             .batch = p.batch.numel(),
             .terms = p.sum.numel(),
             .a_along_k = p.a.col == 1,
             .b_along_k = p.b.col != 1,
             .a_turnable = p.a.col != 1 && a.transpose(-2, -1).is_contiguous() ? a.numel() : 0,
             .b_turnable = short_lines(p, b) ? b.numel() : 0,
             .epilogue = p.epilogue != nullptr};
  x.lying = reach_of(a, b, values, p);
  x.dense_blocks = lines_apart(p.a, a) && lines_apart(p.b, b) && aligned_to_16(values);
  SddProblem turned = p;
  turned.a = {.row = p.k, .col = 1};
  if (x.a_turnable > 0) x.a_turned = reach_of(values, b, values, turned);
  turned.a = p.a;
  turned.b = {.row = 1, .col = p.k};
  if (x.b_turnable > 0) x.b_turned = reach_of(a, values, values, turned);
  return x;
}

}  // namespace bs::cuda
