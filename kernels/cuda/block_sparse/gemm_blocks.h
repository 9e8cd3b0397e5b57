#pragma once
/** @file Dense products of 16 bits on Hopper of which only some blocks are stored. */
#include <bs/kernels/gemm_description.h>
#include <bs/lib/cuda/jit.h>
#include <bs/lib/stream.h>
#include <bs/lib/tensor.h>

#include <compare>
#include <cstdint>
#include <vector>

namespace bs::cuda {

/** @brief Which kernel. */
struct GemmBlocksKernel {
  DType dtype = DType::bf16;
  MatrixLayout a{}, b{};
  int block = 0;
  auto operator<=>(const GemmBlocksKernel&) const = default;  // NOLINT(modernize-use-nullptr)
};

jit::Source gemm_blocks_source(const GemmBlocksKernel& kernel);
/** @brief All that there are, for tests and bs-prebuild. */
std::vector<GemmBlocksKernel> all_gemm_blocks_kernels();

/** @brief Computes all of A B and stores the blocks that exist, straight to their places; of memory
 *  nothing else is written.
 *  @param[in] a,b [m, k] and [k, n], f16 or bf16, k > 0; lines of either axis, at multiples of 16
 *  bytes. m and n are multiples of `block`.
 *  @param[in] numbers [m / block, n / block] on the device: block_numbers
 *  @param[out] values [blocks, block, block], contiguous, at a multiple of 16 bytes */
void gemm_blocks(const Tensor& a, const Tensor& b, const Tensor& values, const int32_t* numbers,
                 int block, Stream stream);

}  // namespace bs::cuda
