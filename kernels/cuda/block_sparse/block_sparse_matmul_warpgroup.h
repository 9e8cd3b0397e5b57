#pragma once
/** @file The block-sparse products on wgmma, for Hopper: f16 and bf16, blocks from 16 on, operands
 *  that the copy engine can address. */
#include <bs/kernels/cuda/block_sparse/block_sparse_kernel.h>
#include <bs/kernels/cuda/block_sparse/device_lists.h>

#include <vector>

namespace bs::cuda {

/** @brief What a kernel is emitted from. */
struct WarpgroupKernel : ProductKernel {
  int cols = 0;           ///< columns a warpgroup computes
  bool gathered = false;  ///< rows of a strip are
  int staged = 1;         ///< results that leave by the copy engine: C, or it and one more
  auto operator<=>(const WarpgroupKernel&) const = default;  // NOLINT(modernize-use-nullptr)
};

KernelLaunch launch_of(const WarpgroupKernel& kernel);
jit::Source source_of(const WarpgroupKernel& kernel, const GemmEpilogue* epilogue = nullptr);
/** @brief All that can ever be asked for, without epilogues, or those that take one: not those of
 *  sdd that turn blocks. */
std::vector<WarpgroupKernel> all_warpgroup_kernels(bool epilogues = false);

/** @brief Path::warpgroup. */
void warpgroup_dsd(const DsdWork& work, const Tensor& values, const Tensor& b, const Tensor& c,
                   const DsdProblem& p, Stream stream);
void warpgroup_sdd(const SddWork& work, const Tensor& a, const Tensor& b, const Tensor& values,
                   const SddProblem& p, Stream stream);

}  // namespace bs::cuda
