#pragma once
/** @file Images with a border. x is [N, C, H, W], floating, any strides; results have its format.
 */
#include <bs/kernels/conv2d_problem.h>
#include <bs/kernels/dispatch.h>

namespace bs {

enum class PadMode : uint8_t {
  constant,  ///< a value
  reflect,   ///< the image mirrored at its outermost pixels, which are not repeated
  replicate  ///< the nearest pixel
};

struct PadOptions {
  Padding2 padding;  ///< rows and columns to add
  PadMode mode = PadMode::constant;
  double value = 0;  ///< of the constant border
};

/** @brief x with a border, as PyTorch's pad.
 *  @throws Error for negative numbers, or a reflection of more pixels than there are. */
Tensor pad(const Tensor& x, const PadOptions& options);
/** @brief dx of `x_shape`, in dy's format: each pixel's gradients added up. */
Tensor pad_backward(const Tensor& dy, const Shape& x_shape, const PadOptions& options);

}  // namespace bs
