#pragma once
/** @file Differentiable rotary position embedding; see kernels/rope.h. */
#include <bs/autograd/variable.h>
#include <bs/kernels/rope.h>

namespace bs {

/** @brief Turns pairs of each row of x [batch, heads, sequence, head_dim]. Saves the table. */
Variable rope(const Variable& x, const Tensor& table, const RopeOptions& options = {});

}  // namespace bs
