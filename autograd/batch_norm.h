#pragma once
/** @file Differentiable batch norm; see kernels/batch_norm.h for the formulas. */
#include <bs/autograd/variable.h>
#include <bs/kernels/batch_norm.h>

namespace bs {

/** @brief Normalises by the statistics of x, which join the running ones. Weight, bias and residual
 *  may be undefined. Saves x and two numbers a channel, and its result where a residual is added
 *  before a ReLU. */
Variable batch_norm(const Variable& x, const Variable& weight, const Variable& bias,
                    const RunningStatistics& running, const BatchNormOptions& options = {},
                    const Variable& residual = {});
/** @brief Normalises by a mean and a variance that are given, and get no gradient. */
Variable batch_norm_by(const Variable& x, const Variable& weight, const Variable& bias,
                       const Tensor& mean, const Tensor& var, const BatchNormOptions& options = {},
                       const Variable& residual = {});

}  // namespace bs
