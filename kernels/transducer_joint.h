#pragma once
/** @file The joint of a transducer: every frame of the encoder meets every label of the prediction
 *  network. docs/transducer.md has the memory of each mode. */
#include <bs/kernels/dispatch.h>
#include <bs/kernels/transducer_loss.h>
#include <bs/lib/random.h>

#include <utility>

namespace bs {

struct TransducerJointOptions {
  bool relu = true;
  /** Share of elements dropped; the others are scaled by 1 / (1 - dropout). A multiple of 2^-16,
   *  to which it is rounded, and unless it is 1 at most 65281 of them: see detail::JointDropout. */
  double dropout = 0;
  /** -1: padded result. Else only rows within the lengths, one utterance after the other, as
   *  transducer_loss takes them: this many, see transducer_packed_rows. */
  int64_t packed_rows = -1;
  /** Number of the first utterance where f and g are part of a batch: which elements are dropped
   *  depends on (state, utterance, frame, label, column), so that parts drop what the whole does.
   */
  int64_t first_utterance = 0;
};

/** @brief The rows of packed logits: the sum of frames * (labels + 1). Waits for the device where
 *  the lengths lie on one. */
int64_t transducer_packed_rows(const Tensor& logit_lengths, const Tensor& target_lengths);

/** @brief h[b, t, u, :] = dropout(relu(f[b, t, :] + g[b, u, :])). One write of h.
 *  @param[in] f [batch, frames, n], floating: the encoder's; any strides
 *  @param[in] g [batch, labels + 1, n] of f's dtype: the prediction network's
 *  @param[in] logit_lengths [batch] frames of each utterance, i64 or i32; undefined: all
 *  @param[in] target_lengths [batch] labels of each utterance; undefined: all
 *  @param[in] state the sequence of random numbers; means nothing without dropout
 *  @return [batch, frames, labels + 1, n], zero past the lengths, or packed [packed_rows, n]
 *  @throws Error for shapes and dtypes that do not fit, dropout outside of [0, 1] and, on the CPU,
 *  lengths out of range or packed_rows that are not as many as they say. On CUDA an utterance whose
 *  lengths do not fit is taken as empty. */
Tensor transducer_joint(const Tensor& f, const Tensor& g, const Tensor& logit_lengths = {},
                        const Tensor& target_lengths = {},
                        const TransducerJointOptions& options = {}, RandomState state = {});

/** @brief df and dg: dh summed over labels and over frames where h was neither cut off nor dropped,
 *  which is computed again from f, g and `state`. One read of dh within the lengths; sums in f32
 *  (f64), in an order of their own: the same bits from run to run. */
std::pair<Tensor, Tensor> transducer_joint_backward(const Tensor& f, const Tensor& g,
                                                    const Tensor& dh,
                                                    const Tensor& logit_lengths = {},
                                                    const Tensor& target_lengths = {},
                                                    const TransducerJointOptions& options = {},
                                                    RandomState state = {});

namespace detail {
/** @brief Dropout by 16 random bits an element, so that a block of them serves 8 elements: block
 *  u ceil(n / 8) + column / 8 + 2^32 (utterance frames + t) of the state's sequence those of row
 *  (utterance, t, u). Dropped are elements whose bits, read as a bfloat16, are below `bound`. A GPU
 *  compares two such at once. Of the 65536 patterns 254 are NaN and below nothing. */
struct JointDropout {
  uint32_t patterns;  ///< below `bound`, or 65536 for p = 1
  uint16_t bound;     ///< bits of a bfloat16
  double scale;       ///< of what is kept

  bool drops(uint32_t bits) const {
    const auto order = [](uint32_t x) {
      const auto magnitude = static_cast<int32_t>(x & 0x7fffU);
      return (x & 0x8000U) != 0 ? -magnitude : magnitude;
    };
    return patterns == 65536 || ((bits & 0x7fffU) <= 0x7f80U && order(bits) < order(bound));
  }
};
JointDropout joint_dropout(double p);
}  // namespace detail

/// Contiguous f, g, dh; lengths undefined where all are full. `sizes.classes` is n.
BS_BACKENDS(void transducer_joint(const Tensor& f, const Tensor& g, const Tensor& logit_lengths,
                                  const Tensor& target_lengths, const Tensor& h,
                                  const TransducerSizes& sizes,
                                  const TransducerJointOptions& options, RandomState state,
                                  Stream stream);
            void transducer_joint_backward(const Tensor& f, const Tensor& g, const Tensor& dh,
                                           const Tensor& logit_lengths,
                                           const Tensor& target_lengths, const Tensor& df,
                                           const Tensor& dg, const TransducerSizes& sizes,
                                           const TransducerJointOptions& options, RandomState state,
                                           Stream stream))

}  // namespace bs
