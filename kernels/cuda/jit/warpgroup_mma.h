#pragma once
/** @file The text of Hopper's tensor-core instruction (wgmma) for a shape and type. */
#include <bs/lib/dtype.h>

#include <string>

namespace bs::cuda {

/** @brief `struct Mma { static void multiply(sums, a, b, add); }`: 64 x `n` x 16 with both operands
 *  in shared memory, described as by device/warpgroup.cuh, and f32 sums; `add` is 0 where sums are
 *  written rather than added to.
 *  @param[in] n columns, a multiple of 8 up to 256
 *  @param[in] dtype f16 or bf16
 *  @param[in] a_along_k, b_along_k whether neighbours along the depth are side by side
 *  @throws Error for other values. PTX ISA, wgmma.mma_async. */
std::string warpgroup_mma(int n, DType dtype, bool a_along_k, bool b_along_k);

/** @brief The same with the left operand in four registers, each two neighbours along the depth.
 */
std::string warpgroup_mma_left(int n, DType dtype, bool b_along_k);

/** @brief `struct Mma { static void multiply(sums, a, b, add); }`: 64 x `n` x 8 of TF32, of which
 *  the left operand comes in four registers and the right one from shared memory, the depth along
 *  its lines.
 *  @throws Error unless n is a multiple of 8 up to 256 */
std::string warpgroup_mma_tf32(int n);

}  // namespace bs::cuda
