#pragma once
/** @file Epilogues in the kernels of the block-sparse products: their text, and what it reads. */
#include <bs/kernels/block_sparse_epilogue.h>
#include <bs/lib/stream.h>
#include <bs/kernels/cuda/device/gemm/gemm_params.cuh>

#include <string>
#include <vector>

namespace bs::cuda {

/** @brief Tells the text of one epilogue from another's; empty for none. */
std::string epilogue_key(const BlockSparseEpilogue* epilogue);

/** @brief `struct Epilogue` for sums of operands of `dtype`.
 *  @param[in] transposed whether the kernel computes the transpose of what the epilogue sees */
std::string epilogue_text(const GemmEpilogue& epilogue, DType dtype, bool transposed);

/** @brief What an epilogue stores first beside D, where it can leave as D does, because it is laid
 *  out like it; else null. */
const Tensor* staged_aside(const BlockSparseEpilogue* epilogue);

/** @brief What the emitted text of one launch reads and writes, with memory for what it reduces
 *  piece by piece; nothing for no epilogue. The memory is the stream's, and may be given back once
 *  the launch and reduce() are queued on it. */
class EpilogueLaunch {
 public:
  /** @param[in] transposed as above
   *  @param[in] result [batch, rows, columns] of what the kernel computes; of sdd its blocks, one
   *             below the other (beside each other where it computes the transpose)
   *  @param[in] rows, columns that the kernel reduces by itself, to one number a column or row */
  EpilogueLaunch(const BlockSparseEpilogue* epilogue, bool transposed, const Shape& result,
                 int rows, int columns, Stream stream);

  const device::BlockSparseEpilogueArguments& arguments() const { return arguments_; }
  /** @brief Finishes the reductions of a dense result. */
  void reduce() const;
  /** @brief Those of the blocks of a layout, given on the device. */
  void reduce(const LayoutView& layout) const;

 private:
  bool over_columns(size_t reduction) const;
  bool is_max(size_t reduction) const;

  const BlockSparseEpilogue* epilogue_;
  bool transposed_;
  Stream stream_;
  device::BlockSparseEpilogueArguments arguments_{};
  std::vector<Tensor> partials_;
};

}  // namespace bs::cuda
