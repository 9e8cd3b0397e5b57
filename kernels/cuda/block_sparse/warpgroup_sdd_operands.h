#pragma once
/** @file What the warpgroup kernels of sdd, for 16 bits and for f32, are told alike. */
#include <bs/kernels/block_sparse_matmul_problem.h>
#include <bs/kernels/cuda/block_sparse/device_lists.h>
#include <bs/kernels/cuda/block_sparse/warpgroup_operands.h>

#include <optional>

namespace bs::cuda {

/** @brief An operand of sdd: A, or the transpose of B. */
struct SddOperand {
  const Tensor& x;
  int number;          ///< in the loops of the problem
  bool along_k;        ///< neighbours along the depth are side by side
  int64_t rows, line;  ///< of one head; elements to the next line
  int64_t head;        ///< and to the next head; 0: there is one for all

  static SddOperand left(const Tensor& a, const SddProblem& p);
  static SddOperand right(const Tensor& b, const SddProblem& p);
  /** @brief In boxes of so many rows by so much of the depth. f32 whose rows are neighbours comes
   *  in boxes of up to 32 rows. */
  DenseMap map(const SddProblem& p, const Axes& axes, int box_rows, int box_depth,
               device::BatchSteps& steps) const;
};

/** @brief How a kernel cuts the operands. */
struct SddTiling {
  int depth = 0;           ///< of a box
  int rows = 0, cols = 0;  ///< of a box: of strips, and of what is gathered for each
  bool gathered = false;   ///< rows of strips are
  bool tf32 = false;       ///< the copy engine rounds rows of strips to TF32
  int slabs = 1;           ///< of a block's rows, each an item
};

/** @brief What `params` do not say. The strips are held until the launch: another thread may make a
 *  cache drop them. */
struct DescribedSdd {
  int64_t items = 0;
  std::optional<Kept<DeviceStrips>> strips = {};
};
/** @brief Fills in all of `params` but where values and what the epilogue reads lie. */
DescribedSdd describe_sdd(const Tensor& a, const Tensor& b, const SddProblem& p,
                          const SddWork& work, const SddTiling& tiling,
                          device::WarpgroupSddParams& params, Stream stream);

}  // namespace bs::cuda
