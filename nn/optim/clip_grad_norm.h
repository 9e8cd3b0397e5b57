#pragma once
/** @file Bounding the norm of all gradients together; see kernels/grad_norm.h. */
#include <bs/autograd/variable.h>
#include <bs/kernels/grad_norm.h>

#include <span>

namespace bs::optim {

/** @brief The norm of all gradients together: a scalar of f64 on their device, not waited for.
 *  Hand it to Optimizer::step as `{.norm = norm, .max_norm = 1}`, which clips as it steps. */
Tensor grad_norm(std::span<const Variable> parameters);
/** @brief Scales the gradients in place so that their norm is at most `max_norm`.
 *  @return the norm before that, not waited for
 *  @throws Error unless max_norm is positive. */
Tensor clip_grad_norm(std::span<const Variable> parameters, double max_norm);

}  // namespace bs::optim
