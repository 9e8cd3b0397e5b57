#pragma once
/** @file What the warpgroup kernels of dsd, for 16 bits and for f32, are told alike. */
#include <bs/kernels/block_sparse_matmul_problem.h>
#include <bs/kernels/cuda/block_sparse/plan/block_sparse_schedule.h>
#include <bs/kernels/cuda/block_sparse/warpgroup_operands.h>

namespace bs::cuda {

/** @brief Block rows together, several at a time. */
struct DsdGroups {
  const RowGroups* gathered = nullptr;  ///< null: neighbours do as well
  int64_t columns = 0;                  ///< of the unions of all strips, or what takes as long
  int64_t longest = 0;                  ///< columns of the longest union
  int64_t times = 0;                    ///< that each strip is taken
};
/** @brief Which had better be together, for a product that sums no heads.
 *  @param[in] rows of a strip, more than one
 *  @param[in] cols columns of C that a CTA has */
DsdGroups dsd_groups(const DsdProblem& p, int rows, int cols, Device device);

/** @brief The strips of a product, of `rows` block rows: of gathered ones where that pays, if each
 *  C has those of one head.
 *  @param[in] cols columns of C that a CTA has
 *  @param[in] pairs of columns stay together */
const BlockSparseStrips& dsd_strips(const DsdProblem& p, int rows, int cols, Device device,
                                    bool pairs = false);

/** @brief How a kernel cuts C and B. */
struct DsdTiling {
  int cols = 0;            ///< columns of C that a CTA has
  int depth = 0;           ///< of a box of B
  int parts = 1;           ///< of a block's rows, each an item
  bool b_along_k = false;  ///< neighbours along the depth are side by side
  bool pairs = false;      ///< then, boxes of twice that depth too
  bool in_parts = false;   ///< f32 as three products of its parts
  SplitCosts costs = {};   ///< in nanoseconds
};

/** @brief What a schedule of these strips depends on besides the layout.
 *  @param[in] element bytes of one */
DsdExtent dsd_extent(const DsdProblem& p, const BlockSparseStrips& strips, const DsdTiling& tiling,
                     int element);

/** @brief Items of a launch, and how they are shared out. */
struct DsdWork {
  const DsdSchedule* schedule = nullptr;  ///< null: the copy engine cannot address B, or the
                                          ///< product is too large
  int64_t items = 0;
};

/** @brief Fills in all of `params` but where C and what the epilogue reads lie. */
DsdWork describe_dsd(const Tensor& b, const DsdProblem& p, const Axes& axes,
                     const BlockSparseStrips& strips, const DenseMap& values,
                     const DsdTiling& tiling, device::WarpgroupDsdParams& params);

}  // namespace bs::cuda
