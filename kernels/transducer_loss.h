#pragma once
/** @file The loss of a recurrent neural network transducer (Graves, 2012, arXiv 1211.3711), fused
 *  with log-softmax. docs/transducer.md has the equations and the memory of each mode. */
#include <bs/kernels/loss.h>

namespace bs {

/** @brief Weights of single transitions; as given they change nothing. With p = softmax(logits), T
 *  frames, and label u+1 the one that may be emitted at (t, u):
 *  - emitting it has the weight p(t, u, label) e^((delay_penalty + [label = eos] eos_penalty)
 *    ((T-1)/2 - t)): positive penalties favour early labels;
 *  - where label u+1 is `star`, which stands for any text, emitting it has the weight
 *    e^(delay_penalty ((T-1)/2 - t)), whatever the logits. After it, at (t, u+1), the time step has
 *    the weight `star_penalty` instead of p(t, u+1, blank). */
struct TransducerLossOptions {
  int64_t blank = -1;                     ///< class of the time step; negative counts from the end
  Reduction reduction = Reduction::mean;  ///< over utterances
  /** > 0: each element of an utterance's gradient is brought into [-clamp, clamp]. After that it is
   *  multiplied by the gradient of its loss, as torchaudio does. */
  double clamp = 0;
  /** FastEmit (Yu et al., 2021): the gradient through emitted labels is 1 + lambda times as large.
   *  The loss is reported (1 + lambda) times, as NeMo does. */
  double fastemit_lambda = 0;
  double delay_penalty = 0;
  int64_t eos = -1;  ///< class of the end of a sentence; -1: none
  double eos_penalty = 0;
  int64_t star = -1;  ///< class that stands for any text; -1: none
  double star_penalty = 1;
};

/** @brief A loss and what its backward needs: no probabilities of classes are kept. */
struct TransducerLossResult {
  Tensor loss;        ///< scalar, or [batch] for Reduction::none; f32 (f64 for f64 logits)
  Tensor lse;         ///< log(sum(exp(logits))) of each row within the lengths, of the loss' dtype
  Tensor lattice;     ///< weights of transitions and sums over paths; its form is a backend's own
  Tensor utterances;  ///< where they lie, likewise
};

/** @brief loss = -log sum over paths of the product of transition weights: from (0, 0), each step
 *  either goes on to (t+1, u), a blank, or to (t, u+1), a label; the last is the blank of (T-1, U).
 *
 *  Sums over paths are kept as mantissa and exponent. So they are as good for long sequences as for
 *  short ones, and for improbable ones. One read of the logits, and 4 pairs of numbers for each
 *  (t, u) written.
 *  @param[in] logits floating, [batch, max_frames, max_labels + 1, classes], of which only what
 *  lies within the lengths is read; or packed [rows, classes], one utterance after the other.
 *  Utterance b has logit_lengths[b] * (target_lengths[b] + 1) rows, label fastest.
 *  More rows than these are not read; their gradient is zero
 *  @param[in] targets [batch, max_labels] of i64 or i32: classes; padding is not read
 *  @param[in] logit_lengths [batch] frames of each utterance, i64 or i32
 *  @param[in] target_lengths [batch] labels of each utterance, i64 or i32
 *  @throws Error for shapes and dtypes that do not fit. The CPU also refuses lengths and labels out
 *  of range, and fewer packed rows than the lengths say. On CUDA, which the host does
 *  not wait for, the loss of such an utterance is NaN and its gradient zero or NaN.
 *
 *  An utterance without frames has no path: its loss is infinite. So is one whose every path needs
 *  a class of probability 0. Their gradients are zero. A NaN among the rows of an utterance, or
 *  +infinity, makes its loss and its gradient NaN, and no other's. The mean over no utterances is
 *  NaN. */
TransducerLossResult transducer_loss(const Tensor& logits, const Tensor& targets,
                                     const Tensor& logit_lengths, const Tensor& target_lengths,
                                     const TransducerLossOptions& options = {});

/** @brief dlogits, of the logits' shape and dtype; zero past the lengths, where logits are not
 *  read. With e and b the share of paths that emit and that step on at (t, u) (posteriors), the row
 *  is d ((1 + lambda) e (p - [label]) + b (p - [blank])), which sums to zero. Of rows on no path at
 *  most two elements are read.
 *  @param[in] result what transducer_loss returned for these inputs
 *  @param[in] dloss gradient of the loss, of its shape and dtype and any sign
 *  @param[in] in_place writes over the logits and returns them: half the memory; logits must be
 *  contiguous, and what else needs them must have read them before */
Tensor transducer_loss_backward(const Tensor& logits, const Tensor& targets,
                                const TransducerLossResult& result, const Tensor& dloss,
                                const TransducerLossOptions& options = {}, bool in_place = false);

/** @brief The posterior of the lattice: the share of paths, by weight, that pass (t, u). For
 *  pictures of alignments; each diagonal t + u adds up to 1.
 *  @return [batch, max_frames, max_labels + 1] or packed [rows], of the loss' dtype; zero past the
 *  lengths and where there is no path, NaN where the loss is
 *  @param[in] logits as given to transducer_loss; only their shape counts */
Tensor transducer_posterior(const Tensor& logits, const Tensor& targets,
                            const TransducerLossResult& result);

/** @brief The frame at which each label is emitted on the path of the largest weight (Viterbi).
 *  @return [batch, max_labels] of i64 on the logits' device; -1 past the lengths and everywhere for
 *  utterances without a path. Of equal paths the one that emits later counts. */
Tensor transducer_alignment(const Tensor& logits, const Tensor& targets,
                            const TransducerLossResult& result);

/** @brief Sizes of a problem, dense or packed, as backends take them. */
struct TransducerSizes {
  int64_t batch, frames, labels, classes, rows;  ///< frames, labels: the most an utterance has
  bool packed;

  /** @brief Cells of lattices: utterance b's begin at that of its first row + b labels (labels+1),
   *  which leaves room to keep them by diagonals. */
  int64_t cells() const { return rows + batch * labels * (labels + 1); }
};
TransducerSizes transducer_sizes(const char* op, const Tensor& logits, const Tensor& targets);

/// Contiguous tensors; `blank` is not negative. `utterances` [batch + 1, 4] and `lattice` [4,
/// cells, words] of i64 pass from forward to the others. Losses of single utterances go to
/// `losses`, their sum or mean to `loss` where that is defined.
BS_BACKENDS(
    void transducer_loss(const Tensor& logits, const Tensor& targets, const Tensor& logit_lengths,
                         const Tensor& target_lengths, const TransducerLossResult& result,
                         const Tensor& losses, const TransducerLossOptions& options, Stream stream);
    void transducer_loss_backward(const Tensor& logits, const Tensor& targets,
                                  const TransducerLossResult& result, const Tensor& dloss,
                                  const Tensor& dlogits, const TransducerLossOptions& options,
                                  Stream stream);
    void transducer_posterior(const TransducerSizes& sizes, const TransducerLossResult& result,
                              const Tensor& posterior, Stream stream);
    void transducer_alignment(const TransducerSizes& sizes, const TransducerLossResult& result,
                              const Tensor& frames, Stream stream))

}  // namespace bs
