#pragma once
/** @file The differentiable GRU layer; see kernels/gru.h for the equations. */
#include <bs/autograd/recurrent.h>
#include <bs/kernels/gru.h>

namespace bs {

/** @brief All steps of one or more directions over x [T, B, I]. */
std::vector<RecurrentStates> gru(const Variable& x,
                                 std::span<const RecurrentDirectionVariables> directions,
                                 const Tensor& lengths = {});

}  // namespace bs
