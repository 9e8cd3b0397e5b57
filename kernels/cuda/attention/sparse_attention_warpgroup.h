#pragma once
/** @file Fused attention on Hopper's own instructions: the forward pass for 16-bit types. */
#include <bs/kernels/cuda/attention/sparse_attention_plan.h>
#include <bs/kernels/sparse_attention.h>
#include <bs/lib/cuda/jit.h>

#include <cstdint>
#include <vector>

namespace bs::cuda {

/** @brief The blocks that queries and keys lie over, as the kernels on wgmma see them. */
struct AttentionGrid {
  const Layout& layout;  ///< of ragged sequences, that of all of them
  int queries, keys;     ///< rows and columns up to the end of the last one
  device::AttentionPlaces places;
  const unsigned char* seen;   ///< [batch, keys], 0 for padding, or null
  device::AttentionBits bits;  ///< of a mask of elements, if any
  const int* begins;           ///< as AttentionDropout has it
  int64_t height;              ///< of one sequence's layout, which numbers its diagonals
};

/** @brief What rules of the kernels look at. Tables are dense and of f32. `rows`: of a head of lse.
 */
device::AttentionTerms attention_terms(const SparseAttentionOptions& options,
                                       const AttentionGrid& grid, int64_t rows);

jit::Source warpgroup_forward_source(const WarpgroupForward& kernel);
/** @brief All that the plan can ask for. */
std::vector<WarpgroupForward> all_warpgroup_forward_kernels();

/** @brief The kernel for these operands, or one of `dim` 0 where the portable kernel is to run: on
 * other GPUs, and for what the copy engine cannot address.
 */
WarpgroupForward warpgroup_forward_for(const Tensor& q, const Tensor& k, const Tensor& v,
                                       const Layout& layout, const Tensor& out,
                                       const AttentionTraits& traits);

/** @brief Runs `kernel`. Rows of q, k, v and out begin at multiples of 16 bytes; `scale` in the
 * options is the factor itself.
 *  @return an i32 on the device that is not zero where a result is not finite: then the values of
 *  keys that are hidden inside a tile may have reached it, or scores leapt too far */
Tensor launch_warpgroup_forward(const WarpgroupForward& kernel, const Tensor& q, const Tensor& k,
                                const Tensor& v, const AttentionGrid& grid,
                                const SparseAttentionResult& to,
                                const SparseAttentionOptions& options, Stream stream);

}  // namespace bs::cuda
