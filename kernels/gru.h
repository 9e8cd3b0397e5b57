#pragma once
/** @file The gated recurrent unit (Cho et al., 2014), a layer over whole sequences. A step is
 *
 *      r = s(W_ir x + b_ir + W_hr h' + b_hr)      rows of the weights in the order r, z, n
 *      z = s(W_iz x + b_iz + W_hz h' + b_hz)      h': the state before the step
 *      n = tanh(W_in x + b_in + r (W_hn h' + b_hn))
 *      h = (1 - z) n + z h'
 *
 *  with s the sigmoid: the form of PyTorch and cuDNN, in which r weighs the product. */
#include <bs/kernels/recurrent.h>

namespace bs {

/** @brief All steps of one or more directions over the same x; they are independent.
 *  @param[in] x [T, B, I], floating, any strides; all tensors share its dtype and device
 *  @param[in] lengths [B] i64 in host memory, each from 0 to T; undefined: all T
 *  @return the states of each direction. The input's product is one GEMM over all steps.
 *  @throws Error when shapes, dtypes or devices do not fit. */
std::vector<RecurrentResult> gru(const Tensor& x, std::span<const RecurrentDirection> directions,
                                 const Tensor& lengths = {});
/** @brief The vector-Jacobian product of gru. Gradients of weights and of x are one GEMM each over
 *  all steps.
 *  @param[in] results what gru returned for the same arguments
 *  @param[in] upstream one a direction */
RecurrentBackward gru_backward(const Tensor& x, std::span<const RecurrentDirection> directions,
                               const Tensor& lengths, std::span<const RecurrentResult> results,
                               std::span<const RecurrentUpstream> upstream,
                               RecurrentWants wants = {});

/// No extent is 0.
BS_BACKENDS(void gru(std::span<const RecurrentSteps> directions, Stream stream);
            void gru_backward(std::span<const RecurrentBackwardSteps> directions, Stream stream))

}  // namespace bs
