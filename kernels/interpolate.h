#pragma once
/** @file Images in another size. x is [N, C, H, W], floating, any strides; results have its format.
 */
#include <bs/kernels/conv2d_problem.h>
#include <bs/kernels/dispatch.h>

namespace bs {

enum class Interpolation : uint8_t {
  nearest,  ///< the pixel floor(o in / out): PyTorch's "nearest"
  bilinear  ///< between the four pixels around
};

struct InterpolateOptions {
  Extent2 size;  ///< of the result
  Interpolation mode = Interpolation::nearest;
  /** Of bilinear: whether centres of the outermost pixels coincide, o (in - 1) / (out - 1); else
   *  their edges do, (o + 1/2) in / out - 1/2, as is PyTorch's default. */
  bool align_corners = false;
};

/** @brief x in another size, as PyTorch's interpolate. Pixels without weight in a result do not
 *  reach it, finite or not. @throws Error unless x is an image of some pixels and `size` positive.
 */
Tensor interpolate(const Tensor& x, const InterpolateOptions& options);
/** @brief dx of `x_shape`, in dy's format. */
Tensor interpolate_backward(const Tensor& dy, const Shape& x_shape,
                            const InterpolateOptions& options);

}  // namespace bs
