#pragma once
/** @file One direction of an LSTM layer put together from differentiable operations, step by step:
 *  for options that the fused layer of kernels/lstm.h has not. A step is some twenty operations,
 *  where the fused layer has two. */
#include <bs/autograd/lstm.h>
#include <bs/lib/random.h>

namespace bs::nn {

/** @brief Factors and offsets of the layer norms; undefined ones are left out. */
struct LSTMNorms {
  Variable ih;      ///< [4 hidden], of W_ih x
  Variable hh;      ///< [4 hidden], of W_hh h
  Variable c;       ///< [hidden], of c~ on its way to tanh
  Variable c_bias;  ///< [hidden]
};

/** @brief The states of one direction over x [T, B, I]; see docs/lstm.md for the equations.
 *  @param[in] quantize block floating point for weights, x and h where they are multiplied (blocks
 *    of 8 along the sums, 8 bits). Biases, sums, gates, c and h are rounded to bf16. Gradients pass
 *    the roundings.
 *  @param[in] lengths as lstm takes them; what stands beyond them reaches no result or gradient
 *  @param[in] generator what zoneout is drawn from
 *  @throws Error for lengths that do not fit x. */
LSTMStates composed_lstm(const Variable& x, const LSTMDirectionVariables& direction,
                         const Tensor& lengths, const LSTMNorms& norms, bool quantize,
                         Generator& generator);

}  // namespace bs::nn
