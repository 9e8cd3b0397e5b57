#pragma once
/** @file The block-sparse products on mma.sync: the path for every GPU from sm_80 on, every dtype
 *  and every stride. Kernels are emitted for one block size, one dtype and one order of each
 *  operand's elements, and compiled at run time. */
#include <bs/kernels/cuda/block_sparse/block_sparse_kernel.h>
#include <bs/kernels/cuda/block_sparse/device_lists.h>

#include <vector>

namespace bs::cuda {

/** @brief What a kernel is emitted from. C is by columns only where an epilogue, which is that of
 *  C^T then, has to know. */
struct TiledKernel : ProductKernel {
  bool tf32 = false;     ///< f32 rounded, instead of split in two
  int cols = 64;         ///< of a tile: widest_tile or a half of it, down to 64
  bool aligned = true;   ///< operands fall into vectors of 16 bytes; if not, cols is 64
  bool cut = false;      ///< dsd whose long tiles are cut over the depth, and so taken by parts
  bool repeats = false;  ///< dsd that may have to be computed again: few CTAs look whether it has
  auto operator<=>(const TiledKernel&) const = default;  // NOLINT(modernize-use-nullptr): its bug
};

KernelLaunch launch_of(const TiledKernel& kernel);
jit::Source source_of(const TiledKernel& kernel, const GemmEpilogue* epilogue = nullptr);
/** @brief All that can ever be asked for, without epilogues. */
std::vector<TiledKernel> all_tiled_kernels();

/** @brief Where it stands on the device whether a product is computed again. */
struct RepeatMark {
  const int32_t* mark = nullptr;  ///< null: it is computed for the first time
  int32_t marked = 0;             ///< and again if this stands there
};
/** @brief Path::tiled. */
void tiled_dsd(const DsdWork& work, const Tensor& values, const Tensor& b, const Tensor& c,
               const DsdProblem& p, Stream stream, const RepeatMark& repeat = {});
void tiled_sdd(const SddWork& work, const Tensor& a, const Tensor& b, const Tensor& values,
               const SddProblem& p, Stream stream);

}  // namespace bs::cuda
