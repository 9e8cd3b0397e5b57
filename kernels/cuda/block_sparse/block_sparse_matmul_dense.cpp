#include <bs/kernels/block_sparse_convert.h>
#include <bs/kernels/cuda/block_sparse/block_sparse_matmul_dense.h>
#include <bs/kernels/cuda/block_sparse/block_sparse_matmul_tiled.h>
#include <bs/kernels/cuda/block_sparse/block_sparse_not_finite.h>
#include <bs/kernels/cuda/block_sparse/block_sparse_numbers.h>
#include <bs/kernels/cuda/block_sparse/gemm_blocks.h>
#include <bs/kernels/cuda/gemm/matmul_description.h>
#include <bs/kernels/gemm_operation.h>
#include <bs/kernels/matmul.h>
#include <bs/kernels/settings.h>
#include <bs/lib/kept.h>

#include <atomic>
#include <string>

namespace bs::cuda {

namespace {

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

/// The dense product with an epilogue, made once for each text that is in use.
Kept<GemmOperation> operation_of(DType dtype, MatrixLayout a, MatrixLayout b,
                                 const GemmEpilogue& epilogue) {
  constexpr size_t most = 64;
  static auto* const operations = new Cache(most);  // never destroyed: threads may outlive main
  return operations->get<GemmOperation>(format("{} {} {} ", dtype, a, b) + key(epilogue), [&] {
    return GemmOperation(describe_large_matmul(dtype, a, b, epilogue));
  });
}

/// d = the epilogue of a b, for matrices of one batch.
void finished_matmul(const Tensor& a, const Tensor& b, const Tensor& d,
                     const BlockSparseEpilogue& e) {
  const Kept<GemmOperation> operation =
      operation_of(d.dtype(), layout_of(a), layout_of(b), e.expression);
  // Names are those of the epilogue that the operation was made with.
  const GemmEpilogue& expression = operation->description().epilogue;
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
  operation->run(arguments);
}

}  // namespace

void dense_dsd(const DsdWork& work, const Tensor& values, const Tensor& b, const Tensor& c,
               const DsdProblem& p, Stream stream) {
  // A number of this product's own: memory that holds it by chance costs time, and no more.
  static std::atomic<int32_t> products = 0;
  const bool guarded =
      p.pattern->nnz() < int64_t{p.layout.rows} * p.layout.cols && !settings().finite_operands;
  const Tensor flag = Tensor::empty({1}, i32, stream.device());
  const RepeatMark repeat{flag.data<int32_t>(), ++products};
  if (guarded) find_not_finite(matrix(b), repeat.marked, flag.data<int32_t>(), stream);
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
  // Zero times infinity or NaN is NaN.
  if (guarded) tiled_dsd(work, values, b, c, p, stream, repeat);
}

void dense_sdd(const Tensor& a, const Tensor& b, const Tensor& values, const SddProblem& p,
               Stream stream) {
  const Tensor all = dense_like(p.layout, a);
  matmul(matrix(a), matrix(b), all, stream);
  to_sparse(all, p.layout, one_batch(values), stream);
}

void dense_blocks(const Tensor& a, const Tensor& b, const Tensor& values, const SddProblem& p,
                  Stream stream) {
  const Kept<BlockNumbers> numbers = block_numbers(*p.pattern, stream);
  gemm_blocks(matrix(a), matrix(b), one_batch(values), numbers->table.data<int32_t>(),
              p.layout.block, stream);
}

}  // namespace bs::cuda
