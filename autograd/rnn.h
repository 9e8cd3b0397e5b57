#pragma once
/** @file The differentiable plain recurrent layer; see kernels/rnn.h for the equations. */
#include <bs/autograd/recurrent.h>
#include <bs/kernels/rnn.h>

namespace bs {

/** @brief All steps of one or more directions over x [T, B, I]. */
std::vector<RecurrentStates> rnn(const Variable& x,
                                 std::span<const RecurrentDirectionVariables> directions,
                                 Nonlinearity nonlinearity = Nonlinearity::tanh,
                                 const Tensor& lengths = {});

}  // namespace bs
