#pragma once
/** @file Convolution of images, as in PyTorch: a cross-correlation.
 *
 *  y[n, k, p, q] = sum over c, r, s of weight[k, c, r, s] *
 *                  x[n, g C/groups + c, p stride.h + r dilation.h - top, q stride.w + ...]
 *  with x 0 outside of the image, and g the group that output channel k belongs to.
 *
 *  Shapes are logical, x [N, C, H, W] and weight [K, C / groups, R, S]; strides tell the format.
 *  Channels-last, where neighbours in memory are channels, is the fast format. Any strides are
 *  taken; docs/convolution.md lists the operands that are copied into the fast format first.
 *  Results have the format of the images given: channels-last or row-major, dense. */
#include <bs/kernels/activation.h>
#include <bs/kernels/conv2d_problem.h>
#include <bs/kernels/image.h>

namespace bs {

struct Conv2dOptions {
  Extent2 stride = {1, 1};
  Padding2 padding = {};      ///< rows and columns of zeros around x
  bool same = false;          ///< padding for ceil(H / stride) rows; the odd one is below, right
  Extent2 dilation = {1, 1};  ///< distance of a filter's neighbours in x
  int64_t groups = 1;         ///< channels of a group see those of the same group only
};

/** @brief What happens to sums before they are stored: y = activation(sum + bias + residual). */
struct Conv2dEpilogue {
  Tensor bias = {};      ///< [K], or undefined
  Tensor residual = {};  ///< of y's shape, any strides, or undefined
  Activation activation = Activation::none;
};

/** @brief The convolution of x, floating, any strides.
 *  @param[in] weight of x's dtype, as are the tensors of the epilogue
 *  @return y [N, K, P, Q] with P = (H + top + bottom - dilation.h (R - 1) - 1) / stride.h + 1.
 *  Sums are kept in f32, in f64 for f64, and rounded once, behind the epilogue.
 *  @throws Error when shapes do not match, dtypes or devices differ, or the filter is larger than
 *  the padded image. Only the batch may be empty. */
Tensor conv2d(const Tensor& x, const Tensor& weight, const Conv2dOptions& options = {},
              const Conv2dEpilogue& epilogue = {});
/** @brief The vector-Jacobian product in x.
 *  @param[in] dy [N, K, P, Q], whose format dx has
 *  @return dx of `x_shape`; in 16 bits rounded once */
Tensor conv2d_backward_x(const Tensor& dy, const Tensor& weight, const Shape& x_shape,
                         const Conv2dOptions& options = {});
/** @brief The vector-Jacobian product in the weight. The order of additions depends on the shapes
 *  alone: the same bits each time.
 *  @return dweight of `weight_shape`, row-major */
Tensor conv2d_backward_w(const Tensor& x, const Tensor& dy, const Shape& weight_shape,
                         const Conv2dOptions& options = {});

/** @brief The gradient of a bias: dy [N, K, P, Q] summed over images and pixels, in the order in
 *  which it lies.
 *  @return [K] */
Tensor conv2d_backward_bias(const Tensor& dy);

/** @brief The transposed convolution: conv2d_backward_x with an epilogue.
 *  @param[in] x [N, K, H, W]
 *  @param[in] weight [K, C / groups, R, S]
 *  @param[in] output_padding rows and columns more at the end, fewer than stride or dilation
 *  @return y [N, C, (H - 1) stride.h - top - bottom + dilation.h (R - 1) + output_padding.h + 1, _]
 *  @throws Error as conv2d, and for `same` */
Tensor conv_transpose2d(const Tensor& x, const Tensor& weight, const Conv2dOptions& options = {},
                        Extent2 output_padding = {0, 0}, const Conv2dEpilogue& epilogue = {});

/** @brief Of conv_transpose2d, the vector-Jacobian product in the weight.
 *  @param[in] dy of conv_transpose2d's result, with any output padding */
Tensor conv_transpose2d_backward_w(const Tensor& x, const Tensor& dy, const Shape& weight_shape,
                                   const Conv2dOptions& options = {});

/** @brief The problem of shapes [N, C, H, W] and [K, C / groups, R, S], its strides left open.
 *  @throws Error in the name of `op` as conv2d does */
Conv2dProblem conv2d_problem(const char* op, const Shape& x, const Shape& weight,
                             const Conv2dOptions& options);

/** Backends get a batch that is not empty, x, weight, dy and residual of any strides, a contiguous
 *  bias and a row-major dweight. y and dx are dense in either format. */
BS_BACKENDS(void conv2d(const Conv2dProblem& problem, const Tensor& x, const Tensor& weight,
                        const Conv2dEpilogue& epilogue, const Tensor& y, Stream stream);
            void conv2d_backward_x(const Conv2dProblem& problem, const Tensor& dy,
                                   const Tensor& weight, const Conv2dEpilogue& epilogue,
                                   const Tensor& dx, Stream stream);
            void conv2d_backward_w(const Conv2dProblem& problem, const Tensor& x, const Tensor& dy,
                                   const Tensor& dweight, Stream stream))

}  // namespace bs
