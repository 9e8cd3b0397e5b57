#pragma once
/** @file Gradients of a bias and of a table, summed from the gradients of scores that kernels on
 * wgmma leave in memory. */
#include <bs/kernels/cuda/attention/sparse_attention_warpgroup.h>
#include <bs/kernels/sparse_attention.h>
#include <bs/lib/cuda/jit.h>
#include <bs/lib/dtype.h>
#include <bs/kernels/cuda/device/attention/warpgroup_backward_problem.cuh>

#include <compare>
#include <vector>

namespace bs::cuda {

/** @brief What a kernel is emitted from. */
struct StoredScoresKernel {
  enum class Sums { bias, diagonals, joined_diagonals };
  Sums sums = Sums::bias;
  DType dtype = f16;
  int block = 0;
  auto operator<=>(const StoredScoresKernel&) const =
      default;  // NOLINT(modernize-use-nullptr): its bug
};

jit::Source stored_scores_source(const StoredScoresKernel& kernel);
std::vector<StoredScoresKernel> all_stored_scores_kernels();

/** @brief Whether what is stored is the gradient of what is added to scores: of capped ones it is
 * that of the products. */
inline bool stores_added_scores(const SparseAttentionOptions& options) {
  return options.softcap == 0;
}

/** @brief Adds to the gradients of a bias and of a table's diagonals, where they are wanted, those
 * of the heads that a launch has.
 *  @param[in] grid that of `problem`, on which the gradients of the scores at `blocks` lie */
void add_stored_scores(const SparseAttentionGradients& gradients,
                       const SparseAttentionOptions& options, const AttentionGrid& grid,
                       const device::WarpgroupAttention& problem, const void* blocks, DType dtype,
                       Stream stream);

}  // namespace bs::cuda
