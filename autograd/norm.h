#pragma once
/** @file Differentiable normalisation; see kernels/norm.h for the formulas. */
#include <bs/autograd/variable.h>

namespace bs {

/** @brief Layer norm over the last axis of x [..., n]; weight and bias [n] may be undefined. Saves
 *  x and two numbers a row. */
Variable layer_norm(const Variable& x, const Variable& weight, const Variable& bias,
                    double eps = 1e-5);
/** @brief RMS norm over the last axis of x [..., n]; weight [n] may be undefined. */
Variable rms_norm(const Variable& x, const Variable& weight, double eps = 1e-6);

/** @brief A sum and its norm. */
struct SumAndNorm {
  Variable sum, norm;
};
/** @brief a + b and layer_norm(a + b) in one pass; their gradients meet in one too. An undefined b
 * is nothing: a itself is the sum. */
SumAndNorm add_layer_norm(const Variable& a, const Variable& b, const Variable& weight,
                          const Variable& bias, double eps = 1e-5);
/** @brief a + b and rms_norm(a + b) in one pass, likewise. */
SumAndNorm add_rms_norm(const Variable& a, const Variable& b, const Variable& weight,
                        double eps = 1e-6);

}  // namespace bs
