#pragma once
/** @file What the differentiable recurrent layers with one state share; see kernels/recurrent.h for
 *  the shapes. */
#include <bs/autograd/variable.h>
#include <bs/kernels/recurrent.h>

#include <functional>
#include <span>
#include <vector>

namespace bs {

/** @brief RecurrentWeights as variables. */
struct RecurrentWeightVariables {
  Variable ih, hh;
  Variable bias_ih = {}, bias_hh = {};
};

/** @brief RecurrentDirection over variables. */
struct RecurrentDirectionVariables {
  RecurrentWeightVariables weights;
  Variable h0 = {};
  bool reverse = false;
};

/** @brief The states of one direction; each may receive a gradient. */
struct RecurrentStates {
  Variable y;    ///< [T, B, H]: h after each step
  Variable h_n;  ///< [B, H]
};

namespace detail {

using RecurrentForward = std::function<std::vector<RecurrentResult>(
    const Tensor& x, std::span<const RecurrentDirection> directions)>;
using RecurrentGradient = std::function<RecurrentBackward(
    const Tensor& x, std::span<const RecurrentDirection> directions,
    std::span<const RecurrentResult> results, std::span<const RecurrentUpstream> upstream,
    RecurrentWants wants)>;

/** @brief Does `forward` and records it. Saves x, the states, and the gates of all steps. */
std::vector<RecurrentStates> record_recurrent(
    const char* name, const Variable& x, std::span<const RecurrentDirectionVariables> directions,
    const RecurrentForward& forward, const RecurrentGradient& backward);

}  // namespace detail

}  // namespace bs
