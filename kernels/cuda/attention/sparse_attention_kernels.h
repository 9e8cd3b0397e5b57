#pragma once
/** @file The text of the kernels of fused attention: one for a pass, a dtype, a padded head_dim and
 * a tile, and for 16-bit types one more for tiles that lie within blocks; others know more rules.
 */
#include <bs/kernels/cuda/attention/sparse_attention_config.h>
#include <bs/lib/cuda/jit.h>
#include <bs/lib/dtype.h>

#include <compare>
#include <vector>

namespace bs::cuda {

/** @brief What a kernel is emitted from. */
struct AttentionKernel {
  AttentionPass pass = AttentionPass::forward;
  DType dtype = f16;
  int dim = 0;                ///< sparse_attention_dim of it
  bool whole = false;         ///< sparse_attention_whole
  unsigned rules = 0;         ///< device::AttentionRule bits
  int shared_bytes = 232448;  ///< of a CTA at most; kernels differ by the tile that follows
  bool asked = false;         ///< does nothing if the word that a second parameter points at is 0;
                              ///< may be launched early (LaunchShape::programmatic)
  auto operator<=>(const AttentionKernel&) const =
      default;  // NOLINT(modernize-use-nullptr): its bug
};

/** @brief Whether few CTAs go through all tiles: those of a kernel that is asked are gone at once
 * if there is nothing to do. With rules it has no registers left for that, and a CTA for each tile.
 */
constexpr bool has_few_ctas(const AttentionKernel& kernel) {
  return kernel.asked && kernel.rules == 0;
}

SparseAttentionTile tile_of(const AttentionKernel& kernel);
/** @brief The kernel; without a tile that fits, one that gives each row a warp. */
jit::Source attention_source(const AttentionKernel& kernel);
/** @brief Two numbers for each query, which the other passes of backward need. */
jit::Source attention_numbers_source(DType dtype);

/** @brief Gradients of what is added to scores. */
struct AttentionScoreKernel {
  bool diagonals = false;  ///< sums over diagonals; else the gradient of a bias
  DType dtype = f16;
  int dim = 0;
  unsigned rules = 0;
  bool asked = false;  ///< as AttentionKernel has it
  auto operator<=>(const AttentionScoreKernel&) const =
      default;  // NOLINT(modernize-use-nullptr): its bug
};
jit::Source attention_score_source(const AttentionScoreKernel& kernel);

/** @brief The kernels of plain problems on a GPU with `shared_bytes` for a CTA. */
std::vector<AttentionKernel> all_attention_kernels(int shared_bytes = 232448);

}  // namespace bs::cuda
