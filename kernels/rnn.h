#pragma once
/** @file The plain recurrent layer (Elman, 1990) over whole sequences. A step is
 *
 *      h = f(W_ih x + b_ih + W_hh h' + b_hh)      h': the state before the step
 *
 *  with f the tanh or max(0, .). */
#include <bs/kernels/recurrent.h>

#include <cstdint>

namespace bs {

/** @brief What a plain layer makes of its sums. */
enum class Nonlinearity : uint8_t { tanh, relu };

/** @brief All steps of one or more directions over the same x; they are independent.
 *  @param[in] x [T, B, I], floating, any strides; all tensors share its dtype and device
 *  @param[in] lengths [B] i64 in host memory, each from 0 to T; undefined: all T
 *  @return the states of each direction. The input's product is one GEMM over all steps.
 *  @throws Error when shapes, dtypes or devices do not fit. */
std::vector<RecurrentResult> rnn(const Tensor& x, std::span<const RecurrentDirection> directions,
                                 Nonlinearity nonlinearity = Nonlinearity::tanh,
                                 const Tensor& lengths = {});
/** @brief The vector-Jacobian product of rnn. Gradients of weights and of x are one GEMM each over
 *  all steps.
 *  @param[in] results what rnn returned for the same arguments
 *  @param[in] upstream one a direction */
RecurrentBackward rnn_backward(const Tensor& x, std::span<const RecurrentDirection> directions,
                               Nonlinearity nonlinearity, const Tensor& lengths,
                               std::span<const RecurrentResult> results,
                               std::span<const RecurrentUpstream> upstream,
                               RecurrentWants wants = {});

/// No extent is 0.
BS_BACKENDS(void rnn(std::span<const RecurrentSteps> directions, Nonlinearity nonlinearity,
                     Stream stream);
            void rnn_backward(std::span<const RecurrentBackwardSteps> directions,
                              Nonlinearity nonlinearity, Stream stream))

}  // namespace bs
