#pragma once
/** @file Differentiable relatives of relu, and gated units; see kernels/rectifier.h. All save x. */
#include <bs/autograd/variable.h>

namespace bs {

Variable leaky_relu(const Variable& x, double slope = 0.01);
Variable elu(const Variable& x, double alpha = 1);
Variable softplus(const Variable& x, double beta = 1);
Variable mish(const Variable& x);
Variable hardswish(const Variable& x);
/** @brief a sigmoid(b), a and b the halves of x along `axis` (Dauphin et al., arXiv:1612.08083).
 *  @throws Error unless the axis is even. */
Variable glu(const Variable& x, int axis = -1);
inline Tensor glu(const Tensor& x, int axis = -1) { return glu(Variable(x), axis).data(); }

}  // namespace bs
