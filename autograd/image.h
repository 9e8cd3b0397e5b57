#pragma once
/** @file Differentiable change of an image's format; see kernels/image.h. */
#include <bs/autograd/variable.h>
#include <bs/kernels/image.h>

namespace bs {

/** @brief x [N, C, H, W] itself where it is dense and channels-last, else such a copy. */
Variable channels_last(const Variable& x);

}  // namespace bs
