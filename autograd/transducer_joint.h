#pragma once
/** @file The differentiable joint of a transducer, and batches worked through in parts; see
 *  kernels/transducer_joint.h. */
#include <bs/autograd/variable.h>
#include <bs/kernels/transducer_joint.h>

#include <functional>
#include <vector>

namespace bs {

/** @brief dropout(relu(f[b, t] + g[b, u])), padded or packed. Saves f, g, and with dropout a bit an
 *  element, not the result. */
Variable transducer_joint(const Variable& f, const Variable& g, const Tensor& logit_lengths = {},
                          const Tensor& target_lengths = {},
                          const TransducerJointOptions& options = {},
                          Generator& generator = default_generator());
/** @brief The same with a sequence of random numbers of the caller's, for parts of a batch. */
Variable transducer_joint(const Variable& f, const Variable& g, const Tensor& logit_lengths,
                          const Tensor& target_lengths, const TransducerJointOptions& options,
                          RandomState state);

namespace detail {
/** @brief The first utterance of a part of a batch; of part number `parts`, the batch's end. */
constexpr int64_t part_begin(int64_t batch, int64_t parts, int64_t part) {
  return batch * part / parts;
}
}  // namespace detail

/** @brief A scalar, what utterances `begin` to `end` of a batch are worth. It is given their part
 *  of the variables that are cut, and all of those that are not. */
using PartLoss =
    std::function<Variable(const std::vector<Variable>& cut, const std::vector<Variable>& whole,
                           int64_t begin, int64_t end)>;

/** @brief The sum of `loss` over `parts` parts of a batch, with the memory of one part. Each part's
 *  forward is followed by its backward; then nothing of it is left but gradients.
 *
 *  Gradients of `cut` and `whole` reach them, and what is before them, when the result is taken
 *  backward. Other variables that `loss` uses get none. If `loss` is a sum over utterances, the
 *  gradients are those of `loss(cut, whole, 0, batch)`, up to the order of sums. So let it draw
 *  random numbers from a RandomState of the batch (see TransducerJointOptions). For a mean, divide
 *  the result by the whole batch's size.
 *  @param[in] cut variables of one extent of axis 0, the batch
 *  @param[in] whole variables that every part uses whole: parameters
 *  @param[in] scale the gradient that parts are taken backward with, which is expected of the
 *  result too. Another one is right as well, but rounds gradients once more.
 *  @throws Error for a number of parts outside of [1, batch], or a scale of zero. */
Variable part_by_part(const std::vector<Variable>& cut, const std::vector<Variable>& whole,
                      int64_t parts, const PartLoss& loss, double scale = 1);

}  // namespace bs
