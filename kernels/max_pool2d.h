#pragma once
/** @file Max pooling of images [N, C, H, W], floating, any strides; results have x's format. */
#include <bs/kernels/conv2d_problem.h>
#include <bs/kernels/dispatch.h>

namespace bs {

struct MaxPool2dOptions {
  Extent2 kernel;
  Extent2 stride = {0, 0};  ///< 0: the kernel's
  Extent2 padding = {0, 0};
  Extent2 dilation = {1, 1};
  bool ceil_mode = false;  ///< also windows that reach beyond the padding
};

/** @brief Maxima, and where they were. */
struct MaxPool2dResult {
  Tensor y;
  Tensor winner;  ///< u8, of y's shape and format: the element's number in its window
};

/** @brief The largest element of each window, the first of several; NaN where there is one, as in
 *  PyTorch's max_pool2d. Padding is never chosen.
 *  @throws Error unless x has rank 4, a kernel has at most 256 elements, padding is at most half of
 *  the kernel, and a window fits. */
MaxPool2dResult max_pool2d(const Tensor& x, const MaxPool2dOptions& options);
/** @brief The maxima alone, for which less is computed and written. */
Tensor max_pool2d_values(const Tensor& x, const MaxPool2dOptions& options);
/** @brief dx of `x_shape`, in dy's format: each element gets the gradients of the windows that it
 *  won, always added in the same order. Winners must be those of this pooling: the CPU throws an
 *  Error for one outside of the image, and CUDA drops it. */
Tensor max_pool2d_backward(const Tensor& dy, const Tensor& winner, const Shape& x_shape,
                           const MaxPool2dOptions& options);

/** @brief A pooling of stored images x [images, h, w, c] -> y [images, p, q, c]. */
struct PoolWindows {
  Extent2 kernel, stride, padding, dilation;
};
/// Contiguous and not empty; planes have c = 1. Without a `winner` none is written.
BS_BACKENDS(void max_pool2d(const PoolWindows& windows, const Tensor& x, const Tensor& y,
                            const Tensor& winner, Stream stream);
            void max_pool2d_backward(const PoolWindows& windows, const Tensor& dy,
                                     const Tensor& winner, const Tensor& dx, Stream stream))

}  // namespace bs
