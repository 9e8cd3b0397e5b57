#pragma once
/** @file The differentiable LSTM layer; see kernels/lstm.h for the equations and shapes. */
#include <bs/autograd/variable.h>
#include <bs/kernels/lstm.h>

#include <span>
#include <vector>

namespace bs {

/** @brief LSTMWeights as variables. */
struct LSTMWeightVariables {
  Variable ih, hh;
  Variable bias_ih = {}, bias_hh = {}, hr = {};
  LayoutPtr layout = {};
};

/** @brief LSTMDirection over variables. */
struct LSTMDirectionVariables {
  LSTMWeightVariables weights;
  Variable h0 = {}, c0 = {};
  LSTMRule rule = {};
  bool reverse = false;
  Variable input = {};
  double dropout = 0;
  RandomState dropped = {};
};

/** @brief The states of one direction; each may receive a gradient. */
struct LSTMStates {
  Variable y;    ///< [T, B, R]: h after each step
  Variable c;    ///< [T, B, H]: c after each step; f32 for 16-bit types
  Variable h_n;  ///< [B, R]
  Variable c_n;  ///< [B, H]
};

/** @brief All steps of one or more directions over x [T, B, I]. Saves x, the states, and the gates
 *  of all steps; not a direction's `input`, of which backward needs nothing. */
std::vector<LSTMStates> lstm(const Variable& x, std::span<const LSTMDirectionVariables> directions,
                             const Tensor& lengths = {});

/** @brief Layers over each other, forward in time and of the same extents: the first reads x, the
 *  others y of the one before. A wavefront where that is faster; see kernels/lstm.h. */
std::vector<LSTMStates> lstm_layers(const Variable& x,
                                    std::span<const LSTMDirectionVariables> layers,
                                    const Tensor& lengths = {});

}  // namespace bs
