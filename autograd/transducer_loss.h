#pragma once
/** @file The differentiable transducer loss; see kernels/transducer_loss.h for the formulas. */
#include <bs/autograd/variable.h>
#include <bs/kernels/transducer_loss.h>

namespace bs {

/** @brief The loss of logits [batch, frames, labels + 1, classes] or packed [rows, classes]. Saves
 *  the logits and a few numbers a row.
 *  @param[in] in_place the gradient is written over the logits, which nothing else may need by
 *  then: half the memory. A linear layer before this one needs its input and weight only.
 *  @throws Error in backward when it runs a second time over logits written over. */
Variable transducer_loss(const Variable& logits, const Tensor& targets, const Tensor& logit_lengths,
                         const Tensor& target_lengths, const TransducerLossOptions& options = {},
                         bool in_place = false);

}  // namespace bs
