#include <bs/kernels/cuda/block_sparse/block_sparse_epilogue.h>
#include <bs/kernels/cuda/gemm/gemm_tables.h>
#include <bs/kernels/cuda/reduce/reduce_parts.h>
#include <bs/lib/cuda/launch.h>

#include <algorithm>
#include <cstdint>
#include <type_traits>

namespace bs::cuda {

std::string epilogue_key(const BlockSparseEpilogue* e) {
  return e ? key(e->expression) : std::string();
}

std::string epilogue_text(const GemmEpilogue& e, DType dtype, bool transposed) {
  return "namespace bs::cuda::device {\n" +
         to_source(e, dtype == f64 ? Element::f64 : Element::f32, transposed) +
         "}  // namespace bs::cuda::device\n";
}

const Tensor* staged_aside(const BlockSparseEpilogue* e) {
  if (!e) return nullptr;
  const auto& operands = e->expression.operands();
  for (size_t i = 1; i < operands.size(); ++i) {
    if (operands[i].stored < 0) continue;
    const bool alike = operands[i].element == operands[0].element &&
                       reinterpret_cast<uintptr_t>(e->operands[i].data()) % 16 == 0;
    return alike ? &e->operands[i] : nullptr;
  }
  return nullptr;
}

EpilogueLaunch::EpilogueLaunch(const BlockSparseEpilogue* e, bool transposed, const Shape& result,
                               int rows, int columns, Stream stream)
    : epilogue_(e), transposed_(transposed), stream_(stream) {
  if (!e) return;
  static_assert(GemmEpilogue::most_operands + GemmEpilogue::most_reductions ==
                std::extent_v<decltype(arguments_.operands)>);
  static_assert(GemmEpilogue::most_scalars == std::extent_v<decltype(arguments_.scalars.in_f64)>);
  for (size_t i = 0; i < e->scalars.size(); ++i) {
    arguments_.scalars.in_f32[i] = static_cast<float>(e->scalars[i]);
    arguments_.scalars.in_f64[i] = e->scalars[i];
  }
  const auto& operands = e->expression.operands();
  for (size_t i = 0; i < operands.size(); ++i) {
    const Tensor& t = e->operands[i];
    constexpr int neighbours = 2;  // sums that a thread has side by side
    if (t.defined())
      arguments_.operands[i] =
          gemm_operand(transposed ? t.transpose(1, 2) : t, operands[i].element, neighbours);
  }
  for (size_t i = 0; i < e->reductions.size(); ++i) {
    const Shape shape = over_columns(i) ? Shape{result[0], ceil_div(result[2], columns), result[1]}
                                        : Shape{result[0], ceil_div(result[1], rows), result[2]};
    partials_.push_back(Tensor::empty(shape, e->reductions[i].dtype(), stream.device()));
    const Tensor& t = partials_.back();
    const int64_t row = over_columns(i) ? 1 : t.strides()[1];
    const int64_t column = over_columns(i) ? t.strides()[1] : 1;
    arguments_.operands[operands.size() + i] = {t.data(), row, column, t.strides()[0], 0};
  }
}

bool EpilogueLaunch::over_columns(size_t i) const {
  return epilogue_->expression.reductions()[i].over_columns != transposed_;
}

bool EpilogueLaunch::is_max(size_t i) const { return epilogue_->expression.reductions()[i].is_max; }

void EpilogueLaunch::reduce() const {
  for (size_t i = 0; i < partials_.size(); ++i)
    reduce_parts(partials_[i], epilogue_->reductions[i], is_max(i), stream_);
}

void EpilogueLaunch::reduce(const LayoutView& layout) const {
  for (size_t i = 0; i < partials_.size(); ++i)
    reduce_blocks(partials_[i], layout, epilogue_->expression.reductions()[i].over_columns,
                  epilogue_->reductions[i], is_max(i), stream_);
}

}  // namespace bs::cuda
