#pragma once
/** @file The block-sparse products of f32 on wgmma, for Hopper: rounded to TF32, or as three
 *  products of it; blocks of 64 and 128, dsd of 32 too, sdd without epilogue of 16 and 32 too;
 *  operands that the copy engine can address. */
#include <bs/kernels/cuda/block_sparse/block_sparse_kernel.h>
#include <bs/kernels/cuda/block_sparse/device_lists.h>

#include <vector>

namespace bs::cuda {

/** @brief What a kernel is emitted from; its dtype is f32. */
struct Tf32Kernel : ProductKernel {
  bool split = false;          ///< three products of TF32
  bool large = false;          ///< see tf32_tile()
  bool gathered_rows = false;  ///< dsd: block rows together are alike ones
  int staged = 1;              ///< results that leave together: C, or it and one more
  auto operator<=>(const Tf32Kernel&) const = default;  // NOLINT(modernize-use-nullptr)
};

KernelLaunch launch_of(const Tf32Kernel& kernel);
jit::Source source_of(const Tf32Kernel& kernel, const GemmEpilogue* epilogue = nullptr);
/** @brief All that can ever be asked for, without epilogues, or those that take one: not those of
 *  sdd that gather rows. */
std::vector<Tf32Kernel> all_tf32_kernels(bool epilogues = false);

/** @brief Path::tf32. */
void tf32_dsd(const DsdWork& work, const Tensor& values, const Tensor& b, const Tensor& c,
              const DsdProblem& p, Stream stream);
void tf32_sdd(const SddWork& work, const Tensor& a, const Tensor& b, const Tensor& values,
              const SddProblem& p, Stream stream);

}  // namespace bs::cuda
