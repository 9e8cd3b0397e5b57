#pragma once
/** @file Borders: of images, in one pass, and of any axes. */
#include <bs/kernels/conv2d_problem.h>
#include <bs/kernels/dispatch.h>

namespace bs {

enum class PadMode : uint8_t {
  constant,  ///< a value
  reflect,   ///< the image mirrored at its outermost pixels, which are not repeated
  replicate  ///< the nearest pixel
};

/** @brief Of an image. */
struct PadOptions {
  Padding2 padding;  ///< rows and columns to add
  PadMode mode = PadMode::constant;
  double value = 0;  ///< of the constant border
};

/** @brief Of the last axes of any tensor. */
struct PadAxesOptions {
  /// Before and after the last axis, then before and after the one ahead of it, and so on, as
  /// PyTorch's pad takes them. Negative ones cut, where the border is a constant.
  Dims amounts;
  PadMode mode = PadMode::constant;
  double value = 0;  ///< of the constant border
};

/** @brief x [N, C, H, W], floating, any strides, with a border; of x's format.
 *  @throws Error for negative numbers, or a reflection of more pixels than there are. */
Tensor pad(const Tensor& x, const PadOptions& options);
/** @brief dx of `x_shape`, in dy's format: each pixel's gradients added up. */
Tensor pad_backward(const Tensor& dy, const Shape& x_shape, const PadOptions& options);

/** @brief x, any dtype and strides, with borders; contiguous. A reflection or replication takes a
 *  pass an axis.
 *  @throws Error for more amounts than two an axis, or an odd number of them. Also for a cut of
 * more than there is; otherwise as for images. */
Tensor pad(const Tensor& x, const PadAxesOptions& options);
/** @brief dx of `x_shape`: each element's gradients added up. */
Tensor pad_backward(const Tensor& dy, const Shape& x_shape, const PadAxesOptions& options);

}  // namespace bs
