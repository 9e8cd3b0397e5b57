#pragma once
/** @file Epilogues in the kernels of the block-sparse products: their text, and what it reads. */
#include <bs/kernels/block_sparse_epilogue.h>
#include <bs/kernels/cuda/device/gemm_params.cuh>

#include <string>

namespace bs::cuda {

/** @brief Tells the text of one epilogue from another's; empty for none. */
std::string epilogue_key(const BlockSparseEpilogue* epilogue);

/** @brief `struct Epilogue` for sums of operands of `dtype`.
 *  @param[in] transposed whether the kernel computes the transpose of what the epilogue sees */
std::string epilogue_text(const GemmEpilogue& epilogue, DType dtype, bool transposed);

/** @brief What the emitted text reads and writes; nothing for none. */
device::BlockSparseEpilogueArguments epilogue_arguments(const BlockSparseEpilogue* epilogue,
                                                        bool transposed);

}  // namespace bs::cuda
