#pragma once
/** @file Roundings that gradients pass as if nothing had been rounded (the straight-through
 *  estimator of Bengio, Leonard, Courville, 2013). */
#include <bs/autograd/variable.h>
#include <bs/kernels/block_float.h>

namespace bs {

/** @brief x in block floating point; see kernels/block_float.h. */
Variable block_float(const Variable& x, BlockFloat format = {});
/** @brief x rounded to the numbers that `dtype` has, in its own dtype. */
Variable round_to(const Variable& x, DType dtype);

}  // namespace bs
