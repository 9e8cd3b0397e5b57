#pragma once
/** @file The reductions of an epilogue on the CPU: by many threads, and yet in an order that does
 * not depend on their number. */
#include <bs/kernels/block_sparse_epilogue.h>
#include <bs/kernels/cpu/gemm_epilogue.h>

#include <vector>

namespace bs::cpu {

/** @brief Partial results of pieces of a result, each of which one thread computes, and the way
 * from there to one number a row or column. W is what an EpilogueRows computes in. */
template <class W>
class EpilogueReductions {
 public:
  EpilogueReductions() = default;
  /** @param[in] epilogue none: nothing is reduced
   *  @param[in] result [batch, rows, columns], of sdd its blocks one below the other
   *  @param[in] rows, columns of a piece */
  EpilogueReductions(const BlockSparseEpilogue* epilogue, const Shape& result, int64_t rows,
                     int64_t columns);

  /** @brief Adds `count` neighbours, which `rows` computed last, at a place of the result. */
  void take(const EpilogueRows<W>& rows, EpiloguePlace in, int64_t count);
  /** @brief Behind the last: finishes the reductions of a dense result. */
  void reduce() const;
  /** @brief Those of the blocks of a layout, each of which is a piece. */
  void reduce(const LayoutView& layout) const;

 private:
  bool over_columns(size_t i) const { return e_->expression.reductions()[i].over_columns; }
  bool is_max(size_t i) const { return e_->expression.reductions()[i].is_max; }
  W nothing(size_t i) const;

  const BlockSparseEpilogue* e_ = nullptr;
  int64_t rows_ = 1, columns_ = 1;
  std::vector<Tensor> partials_;  ///< [batch, pieces, rows or columns of the result]
};

}  // namespace bs::cpu
