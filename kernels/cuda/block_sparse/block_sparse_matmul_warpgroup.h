#pragma once
/** @file The block-sparse products on wgmma, for Hopper: f16 and bf16, blocks from 16 on, operands
 *  that the copy engine can address. */
#include <bs/kernels/block_sparse_matmul_problem.h>
#include <bs/kernels/cuda/block_sparse/device_lists.h>
#include <bs/lib/cuda/jit.h>
#include <bs/lib/dtype.h>
#include <bs/lib/tensor.h>

#include <compare>
#include <string>
#include <vector>

namespace bs::cuda {

/** @brief What a kernel is emitted from. */
struct WarpgroupKernel {
  bool sampled = false;  ///< sdd, else dsd
  DType dtype = f16;
  int block = 0;
  bool a_along_k = false, b_along_k = false;  ///< neighbours along the depth are side by side
  bool c_by_columns = false;  ///< dsd: neighbours along the rows of C are; sdd: blocks are turned
  int cols = 0;               ///< columns a warpgroup computes
  bool gathered = false;      ///< rows of a strip are
  int staged = 1;             ///< results that leave by the copy engine: C, or it and one more
  std::string epilogue = {};  ///< its epilogue_key
  auto operator<=>(const WarpgroupKernel&) const = default;  // NOLINT(modernize-use-nullptr)
};

jit::Source warpgroup_source(const WarpgroupKernel& kernel, const GemmEpilogue* epilogue = nullptr);
/** @brief All that can ever be asked for, without epilogues, or those that take one: not those of
 *  sdd that turn blocks. */
std::vector<WarpgroupKernel> all_warpgroup_kernels(bool epilogues = false);

/** @brief Path::warpgroup. */
void warpgroup_dsd(const DsdWork& work, const Tensor& values, const Tensor& b, const Tensor& c,
                   const DsdProblem& p, Stream stream);
void warpgroup_sdd(const SddWork& work, const Tensor& a, const Tensor& b, const Tensor& values,
                   const SddProblem& p, Stream stream);

}  // namespace bs::cuda
