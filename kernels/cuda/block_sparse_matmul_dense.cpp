#include <bs/kernels/block_sparse_convert.h>
#include <bs/kernels/cuda/block_sparse_matmul_config.h>
#include <bs/kernels/cuda/block_sparse_matmul_dense.h>
#include <bs/kernels/cuda/block_sparse_numbers.h>
#include <bs/kernels/cuda/block_sparse_row_groups.h>
#include <bs/kernels/cuda/gemm_blocks.h>
#include <bs/kernels/cuda/matmul_description.h>
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

/// Seconds, of an H200: a copy's start and bytes, and multiplications by cuBLAS.
constexpr double copy_start = 4e-6, bytes_a_second = 3.3e12, products_a_second = 3.95e14;

/// What a dense product with an epilogue takes longer than cuBLAS' without (bench/NOTES.md).
constexpr double finishing = 0.25;

double elements_of(const LayoutView& v) {
  return static_cast<double>(v.rows) * v.cols * v.block * v.block;
}

/// Whether there is one product, for which the densities are known where both ways meet.
bool applies(const Tensor& x, const LayoutView& v, int64_t free, int64_t products) {
  return is_low_precision(x.dtype()) && v.heads == 1 && products == 1 &&
         elements_of(v) * static_cast<double>(free) >= least_work &&
         warpgroup_applies(x.dtype(), device_properties(x.device()).capability);
}

/// Whether `faster(density)` holds, which it does from some density of random blocks on: for that
/// of the layout, and for that which it has to strips of 128 rows.
template <class Faster>
bool holds(const Layout& layout, bool transposed, const Faster& faster) {
  const int rows = WarpgroupTile::dsd_rows(layout.block());
  return faster(layout.density()) &&
         (rows == 1 || faster(random_density(row_groups_of(layout, transposed, rows))));
}

bool pays(const DsdProblem& p) {
  const double elements = elements_of(p.layout);
  const double copy = copy_start + 2 * elements * (1 + p.pattern->density()) / bytes_a_second;
  const double more = copy * products_a_second / (elements * static_cast<double>(p.n)) +
                      (p.epilogue ? finishing : 0);
  return holds(*p.pattern, p.transposed, [&](double density) {
    return dense_dsd_is_faster(p.layout.block, density, p.b.col != 1, more);
  });
}

bool pays(const SddProblem& p, Device device) {
  return !p.epilogue && holds(*p.pattern, false, [&](double density) {
    return dense_sdd_is_faster(p.layout.block, density, p.pattern->height(), p.pattern->width(),
                               device_properties(device).multiprocessors);
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
  if (!applies(b, p.layout, p.n, p.batch.numel() * p.sum.numel()) || !pays(p) ||
      (p.epilogue && !(aligned(matrix(b)) && aligned(matrix(c)))))
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
  if (!applies(a, p.layout, p.k, p.batch.numel() * p.sum.numel()) || !pays(p, a.device()))
    return false;
  const BlockNumbers& numbers = block_numbers(*p.pattern, a.device());
  return gemm_blocks(matrix(a), matrix(b), one_batch(values), numbers.table.data<int32_t>(),
                     p.layout.block, stream);
}

}  // namespace bs::cuda
