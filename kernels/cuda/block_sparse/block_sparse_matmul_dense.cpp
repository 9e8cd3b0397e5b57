#include <bs/kernels/block_sparse_convert.h>
#include <bs/kernels/cuda/block_sparse/block_sparse_matmul_dense.h>
#include <bs/kernels/cuda/block_sparse/block_sparse_numbers.h>
#include <bs/kernels/cuda/block_sparse/gemm_blocks.h>
#include <bs/kernels/cuda/block_sparse/plan/block_sparse_matmul_config.h>
#include <bs/kernels/cuda/block_sparse/plan/block_sparse_row_groups.h>
#include <bs/kernels/cuda/block_sparse/turned_operand.h>
#include <bs/kernels/cuda/gemm/matmul_description.h>
#include <bs/kernels/gemm_operation.h>
#include <bs/kernels/matmul.h>
#include <bs/lib/cuda/runtime.h>

#include <memory>
#include <mutex>

namespace bs::cuda {

namespace {

/// Below this many multiplications neither way fills the GPU, and what is known of the two is of
/// large products.
constexpr double least_work = 1e10;

/// Of an H200: a copy's start, and its bytes a second.
constexpr double copy_start = 4e-6, copy_rate = 3.3e12;

/// What a dense product with an epilogue takes longer than cuBLAS' without (bench/NOTES.md).
constexpr double finishing = 0.25;

Factors factors_of(DType dtype, bool tf32) {
  return dtype != f32 ? Factors::half : tf32 ? Factors::tf32 : Factors::split;
}

double elements_of(const LayoutView& v) {
  return static_cast<double>(v.rows) * v.cols * v.block * v.block;
}

/// Whether there is one product, for which the densities are known where both ways meet.
bool applies(const Tensor& x, const LayoutView& v, int64_t free, int64_t products) {
  return (is_low_precision(x.dtype()) || x.dtype() == f32) && v.heads == 1 && products == 1 &&
         elements_of(v) * static_cast<double>(free) >= least_work &&
         device_properties(x.device()).capability == 90;
}

/// Whether a dense matrix is little of the GPU's memory: where it is not, only the blocks may fit.
bool has_room(const LayoutView& v, const Tensor& x) {
  return elements_of(v) * static_cast<double>(size_of(x.dtype())) <=
         static_cast<double>(device_properties(x.device()).memory_bytes) / 16;
}

/// The time of the dense product of an H200.
double dense_seconds(Factors factors, const LayoutView& v, int64_t free) {
  constexpr double multiplications_a_second[] = {3.95e14, 2.08e14, 6.2e13};
  return elements_of(v) * static_cast<double>(free) /
         multiplications_a_second[static_cast<int>(factors)];
}

/// What cuBLAS takes longer for TF32 where neither operand has the depth along its lines.
double more_across(Factors factors, bool a_along_k, bool b_along_k) {
  return factors == Factors::tf32 && !a_along_k && !b_along_k ? 0.6 : 0;
}

/// To read or write so many elements, half of them each.
double copy_seconds(double elements, DType dtype) {
  return copy_start + elements * static_cast<double>(size_of(dtype)) / copy_rate;
}

/// For the sparse kernels of these blocks, which copy B where its lines are short.
template <class Problem>
double turning_seconds(const Problem& p, const Tensor& b) {
  return short_lines(p, b) ? copy_seconds(2 * static_cast<double>(b.numel()), b.dtype()) : 0;
}

/// Whether `faster(density)` holds, which it does from some density of random blocks on: for that
/// of the layout, and for that which it has to strips of 128 rows, where kernels have such.
template <class Faster>
bool holds(const Layout& layout, bool transposed, bool strips, const Faster& faster) {
  const int rows = WarpgroupTile::dsd_rows(layout.block());
  return faster(layout.density()) &&
         (!strips || rows == 1 || faster(random_density(row_groups_of(layout, transposed, rows))));
}

/// What is copied first counts: S, written out, or by the sparse kernels B, where its lines are
/// short.
bool pays(const DsdProblem& p, const Tensor& b) {
  const Factors factors = factors_of(b.dtype(), p.tf32);
  const int block = p.layout.block;
  const bool gathers = factors == Factors::half && block >= 16;
  const double dense = dense_seconds(factors, p.layout, p.n);
  const double elements = elements_of(p.layout);
  const double writing = copy_seconds(elements * (1 + p.pattern->density()), b.dtype());
  const bool copied = block == 8 || (gathers && block == 16);
  const double turning = copied ? turning_seconds(p, b) : 0;
  const double more = (writing - turning) / dense + (p.epilogue ? finishing : 0) +
                      more_across(factors, !p.transposed, p.b.col != 1);
  return holds(*p.pattern, p.transposed, gathers, [&](double density) {
    return dsd_crossing(factors, block).ratio(density) > 1 + more;
  });
}

bool pays_by_blocks(const SddProblem& p, Device device) {
  return holds(*p.pattern, false, true, [&](double density) {
    return dense_sdd_is_faster(p.layout.block, density, p.pattern->height(), p.pattern->width(),
                               device_properties(device).multiprocessors);
  });
}

bool pays_with_picking(const SddProblem& p, const Tensor& b) {
  const Factors factors = factors_of(b.dtype(), p.tf32);
  const int block = p.layout.block;
  const double picking = copy_seconds(2 * elements_of(p.layout) * p.pattern->density(), b.dtype());
  const double turning = block == 8 ? turning_seconds(p, b) : 0;
  const double more = (picking - turning) / dense_seconds(factors, p.layout, p.k) +
                      more_across(factors, p.a.col == 1, p.b.col != 1);
  return holds(*p.pattern, false, block >= 16, [&](double density) {
    return sdd_crossing(factors, block).ratio(density) > 1 + more;
  });
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

/// Whether lines of a matrix begin at multiples of 16 bytes.
bool aligned(const Tensor& x) {
  const int64_t line = x.strides()[layout_of(x) == MatrixLayout::row_major ? 0 : 1];
  return line % 8 == 0 && reinterpret_cast<uintptr_t>(x.data()) % 16 == 0;
}

/// The dense product with an epilogue, made once for each text.
const GemmOperation& operation_of(DType dtype, MatrixLayout a, MatrixLayout b,
                                  const GemmEpilogue& epilogue) {
  static std::mutex mutex;
  static auto* const all = new std::map<std::string, std::unique_ptr<const GemmOperation>>;
  const std::string name = format("{} {} {} ", dtype, a, b) + key(epilogue);
  const std::lock_guard lock(mutex);
  std::unique_ptr<const GemmOperation>& operation = (*all)[name];
  if (!operation)
    operation = std::make_unique<const GemmOperation>(describe_large_matmul(dtype, a, b, epilogue));
  return *operation;
}

/// d = the epilogue of a b, for matrices of one batch.
void finished_matmul(const Tensor& a, const Tensor& b, const Tensor& d,
                     const BlockSparseEpilogue& e) {
  const GemmOperation& operation =
      operation_of(d.dtype(), layout_of(a), layout_of(b), e.expression);
  // Names are those of the epilogue that the operation was made with.
  const GemmEpilogue& expression = operation.description().epilogue;
  GemmArguments arguments{.a = a, .b = b, .d = d};
  for (size_t i = 1; i < e.operands.size(); ++i) {
    if (!e.operands[i].defined()) continue;
    const auto& [name, kind, element, stored] = expression.operands()[i];
    const Tensor t = e.operands[i].select(0, 0);
    arguments.tensors.emplace(name, kind == epilogue::Operand::Kind::row      ? t.select(0, 0)
                                    : kind == epilogue::Operand::Kind::column ? t.select(1, 0)
                                                                              : t);
  }
  for (size_t i = 0; i < e.reductions.size(); ++i)
    arguments.tensors.emplace(expression.reductions()[i].name, e.reductions[i].select(0, 0));
  for (size_t i = 0; i < e.scalars.size(); ++i)
    arguments.scalars.emplace(expression.scalars()[i], e.scalars[i]);
  operation.run(arguments);
}

}  // namespace

bool dense_dsd(const Tensor& values, const Tensor& b, const Tensor& c, const DsdProblem& p,
               Stream stream) {
  if (!applies(b, p.layout, p.n, p.batch.numel() * p.sum.numel()) || !has_room(p.layout, b) ||
      !pays(p, b) ||
      (p.epilogue && !(b.dtype() != f32 && aligned(matrix(b)) && aligned(matrix(c)))))
    return false;
  Tensor s = dense_like(p.layout, b);
  to_dense(one_batch(values), p.layout, s, stream);
  if (p.transposed) s = s.transpose(0, 1);
  const Tensor result = matrix(c);
  if (p.epilogue && result.is_contiguous()) {
    finished_matmul(s, matrix(b), result, *p.epilogue);
  } else if (p.epilogue) {
    finished_matmul(matrix(b).transpose(0, 1), s.transpose(0, 1), result.transpose(0, 1),
                    *p.epilogue);
  } else if (result.is_contiguous()) {
    matmul(s, matrix(b), result, stream);
  } else {
    matmul(matrix(b).transpose(0, 1), s.transpose(0, 1), result.transpose(0, 1), stream);
  }
  return true;
}

bool dense_sdd(const Tensor& a, const Tensor& b, const Tensor& values, const SddProblem& p,
               Stream stream) {
  if (p.epilogue || !applies(a, p.layout, p.k, p.batch.numel() * p.sum.numel())) return false;
  const bool by_blocks = a.dtype() != f32 && p.layout.block >= 16;
  if (!(by_blocks ? pays_by_blocks(p, a.device()) : pays_with_picking(p, b))) return false;
  if (by_blocks) {
    const BlockNumbers& numbers = block_numbers(*p.pattern, a.device());
    if (gemm_blocks(matrix(a), matrix(b), one_batch(values), numbers.table.data<int32_t>(),
                    p.layout.block, stream))
      return true;
  }
  if (!has_room(p.layout, a)) return false;
  const Tensor all = dense_like(p.layout, a);
  matmul(matrix(a), matrix(b), all, stream);
  to_sparse(all, p.layout, one_batch(values), stream);
  return true;
}

}  // namespace bs::cuda
