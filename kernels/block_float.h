#pragma once
/** @file Block floating point: numbers that share an exponent. */
#include <bs/kernels/dispatch.h>

namespace bs {

/** @brief How numbers are cut into blocks. */
struct BlockFloat {
  int block = 8;  ///< neighbours along the last axis that share an exponent; the last may be fewer
  int bits = 8;   ///< of a number: its sign and its magnitude
};

/** @brief x rounded to block floating point. Let e be the exponent of a block's largest magnitude,
 *  2^e <= max |x| < 2^(e+1). Numbers become k 2^(e+2-bits) with the nearest k, ties to even, from
 *  -2^(bits-1) to 2^(bits-1) - 1.
 *  @param[in] x floating, any strides
 *  @return of x's shape and dtype. A block with an infinity or a NaN, or without anything but
 *    zeros, stays as it is.
 *  @throws Error for a block below 1, or bits outside [2, 24], rank 0, or another dtype. */
Tensor block_float(const Tensor& x, BlockFloat format = {});

/** x and y are contiguous, the last axis is that of the blocks. */
BS_BACKENDS(void block_float(const Tensor& x, const Tensor& y, BlockFloat format, Stream stream))

}  // namespace bs
