#pragma once
/** @file Differentiable connectionist temporal classification; see kernels/ctc_loss.h. */
#include <bs/autograd/variable.h>
#include <bs/kernels/ctc_loss.h>

namespace bs {

/** @brief The loss of log-probabilities, or of logits, [frames, batch, classes]. Saves the input
 * and sums over paths. */
Variable ctc_loss(const Variable& x, const Tensor& targets, const Tensor& input_lengths,
                  const Tensor& target_lengths, const CtcLossOptions& options = {});

}  // namespace bs
