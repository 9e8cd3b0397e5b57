#pragma once
/** @file Differentiable group and instance norm; see kernels/group_norm.h for the formulas. */
#include <bs/autograd/variable.h>
#include <bs/kernels/group_norm.h>

namespace bs {

/** @brief Normalises each image's groups of channels; weight, bias [C] and residual may be
 * undefined. Saves x and two numbers a group, and its result where a residual is added before a
 * ReLU. */
Variable group_norm(const Variable& x, const Variable& weight, const Variable& bias,
                    const GroupNormOptions& options, const Variable& residual = {});

}  // namespace bs
