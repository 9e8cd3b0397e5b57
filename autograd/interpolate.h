#pragma once
/** @file Differentiable interpolation of images; see kernels/interpolate.h. */
#include <bs/autograd/variable.h>
#include <bs/kernels/interpolate.h>

namespace bs {

/** @brief Saves nothing. */
Variable interpolate(const Variable& x, const InterpolateOptions& options);

}  // namespace bs
