#pragma once
/** @file Differentiable change of an image's format; see kernels/image.h. */
#include <bs/autograd/variable.h>
#include <bs/kernels/image.h>

namespace bs {

/** @brief x [N, C, H, W] itself where it is dense and channels-last, else such a copy. */
Variable channels_last(const Variable& x);
/** @brief x with its axes in the order `from` as a dense array with them in the order `to`. */
Variable relayout(const Variable& x, ImageFormat from, ImageFormat to);

}  // namespace bs
