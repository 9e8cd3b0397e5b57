#pragma once
/** @file Differentiable borders; see kernels/pad.h. */
#include <bs/autograd/variable.h>
#include <bs/kernels/pad.h>

namespace bs {

/** @brief Saves nothing. */
Variable pad(const Variable& x, const PadOptions& options);
/** @brief Saves nothing. */
Variable pad(const Variable& x, const PadAxesOptions& options);

}  // namespace bs
