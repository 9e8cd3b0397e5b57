#pragma once
/** @file Differentiable reductions; see kernels/reduce.h. */
#include <bs/autograd/variable.h>
#include <bs/kernels/reduce.h>

namespace bs {

Variable sum(const Variable& x, const Axes& axes = {}, bool keepdim = false);
Variable mean(const Variable& x, const Axes& axes = {}, bool keepdim = false);
/** @brief Saves x. */
Variable var(const Variable& x, const Axes& axes = {}, bool keepdim = false, double correction = 1);
/** @brief Saves x and its result. Equal largest elements share the gradient evenly. */
Variable amax(const Variable& x, const Axes& axes = {}, bool keepdim = false);
/** @brief Saves x and its result. Equal smallest elements share the gradient evenly. */
Variable amin(const Variable& x, const Axes& axes = {}, bool keepdim = false);

}  // namespace bs
