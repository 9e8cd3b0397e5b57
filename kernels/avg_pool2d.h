#pragma once
/** @file Average pooling of images [N, C, H, W], floating, any strides; results have x's format. */
#include <bs/kernels/conv2d_problem.h>
#include <bs/kernels/dispatch.h>

namespace bs {

struct AvgPool2dOptions {
  Extent2 kernel;
  Extent2 stride = {0, 0};    ///< 0: the kernel's
  Extent2 padding = {0, 0};   ///< rows above and below, columns on either side
  bool ceil_mode = false;     ///< also windows that reach beyond the padding
  bool count_padding = true;  ///< whether zeros of the padding count in the average
};

/** @brief Averages over windows, as PyTorch's avg_pool2d.
 *  @throws Error unless x has rank 4, padding is at most half of the kernel, and a window fits. */
Tensor avg_pool2d(const Tensor& x, const AvgPool2dOptions& options);
/** @brief dx of `x_shape`, in dy's format. */
Tensor avg_pool2d_backward(const Tensor& dy, const Shape& x_shape, const AvgPool2dOptions& options);

/** @brief Averages over size.h x size.w windows that cover x: window i of an axis of n has the
 *  elements [floor(i n / size), ceil((i + 1) n / size)), as PyTorch's. */
Tensor adaptive_avg_pool2d(const Tensor& x, Extent2 size);
Tensor adaptive_avg_pool2d_backward(const Tensor& dy, const Shape& x_shape);

/// Gives y [images, pixels, channels] at each pixel x [images, 1, channels] times `share`; dense,
/// floating, not empty. Planes have one channel.
BS_BACKENDS(void spread_over_pixels(const Tensor& x, double share, const Tensor& y, Stream stream))

}  // namespace bs
