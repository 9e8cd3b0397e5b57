#pragma once
/** @file The differentiable joint of a transducer, and batches worked through in parts; see
 *  kernels/transducer_joint.h. */
#include <bs/autograd/variable.h>
#include <bs/kernels/transducer_joint.h>

#include <functional>

namespace bs {

/** @brief dropout(relu(f[b, t] + g[b, u])), padded or packed. Saves f, g, and a seed and an offset
 *  for dropout: neither the result nor a mask. */
Variable transducer_joint(const Variable& f, const Variable& g, const Tensor& logit_lengths = {},
                          const Tensor& target_lengths = {},
                          const TransducerJointOptions& options = {},
                          Generator& generator = default_generator());
/** @brief The same with a sequence of random numbers of the caller's, for parts of a batch. */
Variable transducer_joint(const Variable& f, const Variable& g, const Tensor& logit_lengths,
                          const Tensor& target_lengths, const TransducerJointOptions& options,
                          RandomState state);

/** @brief What a batch is worth from utterance `begin` to `end`, a scalar, given its f and g. */
using PartLoss =
    std::function<Variable(const Variable& f, const Variable& g, int64_t begin, int64_t end)>;

/** @brief The sum over `parts` parts of a batch of `loss`, with the memory of one part: each part's
 *  forward is followed by its backward, after which nothing of it is left but gradients.
 *
 *  Parameters used inside of `loss` get their gradients, for an upstream gradient of `scale`, in
 *  this call; f and g, and what is before them, when the result is taken backward, for which its
 *  gradient must be `scale` again: `part_by_part(...).backward(scale)`. The result is the same as
 *  that of `loss(f, g, 0, batch)` up to the order of sums, if that is a sum over utterances; let it
 *  draw random numbers from a RandomState of the batch (see TransducerJointOptions), and divide by
 *  the whole batch's size where a mean is wanted.
 *  @param[in] f, g of one extent of axis 0
 *  @throws Error for a number of parts outside of [1, batch], or, on the CPU, another gradient
 *  than `scale`. */
Variable part_by_part(const Variable& f, const Variable& g, int64_t parts, const PartLoss& loss,
                      double scale = 1);

}  // namespace bs
