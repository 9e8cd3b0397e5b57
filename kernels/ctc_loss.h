#pragma once
/** @file Connectionist temporal classification (Graves et al., 2006), with the meaning it has in
 *  PyTorch, and fused with log-softmax on request. */
#include <bs/kernels/loss.h>

namespace bs {

struct CtcLossOptions {
  int64_t blank = 0;  ///< class of the blank; negative counts from the end
  /** mean: of each utterance's loss over its number of labels (at least 1), over utterances. */
  Reduction reduction = Reduction::mean;
  bool zero_infinity = false;  ///< utterances that cannot be aligned have the loss 0
  bool logits = false;         ///< the input is logits, whose log-softmax is taken here
};

/** @brief A loss and what its backward needs. */
struct CtcLossResult {
  Tensor loss;     ///< scalar, or [batch] for Reduction::none; f32 (f64 for f64 input)
  Tensor lse;      ///< of logits alone: log(sum(exp)) of each row
  Tensor lattice;  ///< sums over paths, [2, batch, frames, 2 labels + 1, words]
  Tensor totals;   ///< of each utterance, [batch, words]
  Tensor targets;  ///< padded [batch, labels]
};

/** @brief loss_b = -log of the sum, over the paths of input_lengths[b] classes that become targets
 *  b when repeats and then blanks are taken out, of the product of their probabilities.
 *
 *  Sums over paths are kept as mantissa and exponent, so that long inputs lose no digits.
 *  @param[in] x [frames, batch, classes], floating: log-probabilities, or logits where options say
 *  so; any strides
 *  @param[in] targets [batch, labels] of i64 or i32, or concatenated [sum of target_lengths], for
 *  which the host waits for a device; not the blank
 *  @param[in] input_lengths [batch] frames of each utterance, i64 or i32
 *  @param[in] target_lengths [batch] labels of each utterance, i64 or i32
 *  @throws Error for shapes and dtypes that do not fit, and on CUDA for more than 2047 labels: 1071
 *  in f64 where a block has 99 KB of shared memory. On the CPU also for lengths and labels out of
 *  range. On CUDA, which the host does not wait for, the loss of such an utterance is NaN and its
 *  gradient zero.
 *
 *  An utterance of too few frames for its labels has an infinite loss. Its gradient is zero, where
 *  PyTorch's is NaN, unless zero_infinity is set. NaN in what an utterance reads makes its loss
 *  NaN. */
CtcLossResult ctc_loss(const Tensor& x, const Tensor& targets, const Tensor& input_lengths,
                       const Tensor& target_lengths, const CtcLossOptions& options = {});

/** @brief dx. With gamma the share of paths that are in class k at frame t, it is d (p - gamma) for
 *  logits, and -d gamma for log-probabilities. That is the true gradient; PyTorch's is that of the
 *  logits before a log-softmax. Behind a log-softmax both agree. Zero past the lengths.
 *  @param[in] result what ctc_loss returned for these inputs
 *  @param[in] dloss gradient of the loss, of its shape and dtype and any sign */
Tensor ctc_loss_backward(const Tensor& x, const Tensor& input_lengths, const Tensor& target_lengths,
                         const CtcLossResult& result, const Tensor& dloss,
                         const CtcLossOptions& options = {});

/// Contiguous tensors, targets padded, `blank` not negative. Losses of utterances, as they are for
/// Reduction::none, go to `losses`; result.loss is their reduction where it is another tensor.
BS_BACKENDS(void ctc_loss(const Tensor& x, const Tensor& input_lengths,
                          const Tensor& target_lengths, const CtcLossResult& result,
                          const Tensor& losses, const CtcLossOptions& options, Stream stream);
            void ctc_loss_backward(const Tensor& x, const Tensor& input_lengths,
                                   const Tensor& target_lengths, const CtcLossResult& result,
                                   const Tensor& dloss, const Tensor& dx,
                                   const CtcLossOptions& options, Stream stream);
            int64_t most_labels(Device device, DType dtype))

}  // namespace bs
