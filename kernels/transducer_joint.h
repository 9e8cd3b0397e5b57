#pragma once
/** @file The joint of a transducer: every frame of the encoder meets every label of the prediction
 *  network. docs/transducer.md has the memory of each mode. */
#include <bs/kernels/dispatch.h>
#include <bs/kernels/transducer_loss.h>
#include <bs/lib/integers.h>
#include <bs/lib/philox.h>
#include <bs/lib/random.h>

#include <utility>

namespace bs {

struct TransducerJointOptions {
  bool relu = true;
  /** Share of elements dropped; the others are scaled by 1 / (1 - dropout). A multiple of 2^-16,
   *  to which it is rounded, and unless it is 1 at most 65281 of them: see detail::JointDropout. */
  double dropout = 0;
  /** -1: padded result. Else rows within the lengths, one utterance after the other, as
   *  transducer_loss takes them, then rows of zeros: this many, of which transducer_packed_rows are
   *  needed. */
  int64_t packed_rows = -1;
  /** Number of the first utterance where f and g are part of a batch. Which elements are dropped
   *  depends on (state, utterance, frame, label, column). So parts drop what the whole does.
   */
  int64_t first_utterance = 0;
};

/** @brief The rows of packed logits: the sum of frames * (labels + 1). Waits for the device where
 *  the lengths lie on one. */
int64_t transducer_packed_rows(const Tensor& logit_lengths, const Tensor& target_lengths);

/** @brief h[b, t, u, :] = dropout(relu(f[b, t, :] + g[b, u, :])). One write of h, and with dropout
 *  of a bit an element.
 *  @param[in] f [batch, frames, n], floating: the encoder's; any strides
 *  @param[in] g [batch, labels + 1, n] of f's dtype: the prediction network's
 *  @param[in] logit_lengths [batch] frames of each utterance, i64 or i32; undefined: all
 *  @param[in] target_lengths [batch] labels of each utterance; undefined: all
 *  @param[in] state the sequence of random numbers; means nothing without dropout
 *  @param[out] kept where given: what the backward has to know of dropout, as detail::JointBits
 *  lays it out, the same on both devices. Undefined where none or all of the elements are dropped.
 *  @return [batch, frames, labels + 1, n], zero past the lengths, or packed [packed_rows, n]
 *  @throws Error for shapes and dtypes that do not fit, and dropout outside of [0, 1]. The CPU also
 *  refuses lengths out of range, and fewer packed_rows than they ask for. On CUDA an utterance
 *  whose lengths do not fit is taken as empty, as are all from the first that packed_rows cut. */
Tensor transducer_joint(const Tensor& f, const Tensor& g, const Tensor& logit_lengths = {},
                        const Tensor& target_lengths = {},
                        const TransducerJointOptions& options = {}, RandomState state = {},
                        Tensor* kept = nullptr);

/** @brief df and dg: dh summed over labels and over frames where h was neither cut off nor dropped.
 *  That is computed again from f and g, or with dropout read from what the forward kept. One read
 * of dh within the lengths; sums in f32 (f64), in an order of their own: the same bits from run to
 * run.
 *  @param[in] kept what transducer_joint gave for these sizes and this dtype
 *  @throws Error as transducer_joint, and with dropout for `kept` undefined or of another size. */
std::pair<Tensor, Tensor> transducer_joint_backward(const Tensor& f, const Tensor& g,
                                                    const Tensor& dh,
                                                    const Tensor& logit_lengths = {},
                                                    const Tensor& target_lengths = {},
                                                    const TransducerJointOptions& options = {},
                                                    const Tensor& kept = {});

namespace detail {
/** @brief Dropout by 16 random bits an element, so that a block of Philox4x32-7 serves 8. Those of
 *  row (utterance, t, u) have block u ceil(n / 8) + column / 8 + 2^32 (utterance frames + t) of the
 *  state's sequence. Dropped are elements whose bits, read as a bfloat16, are below `bound`. A GPU
 *  compares two such at once. Of the 65536 patterns 254 are NaN and below nothing. */
struct JointDropout {
  static constexpr int rounds = philox_fewest_rounds;

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

/** @brief A bit for each element of a joint: whether it is kept, neither dropped nor cut off (of
 *  relu, h > 0). Four frames of one label are a cell, in which G columns, 16 bytes of h, have a
 *  field of 4 G bits. That of frame r's column c is bit 2 G (c % 2) + r G / 2 + c / 2. So a GPU
 *  sets those of two 16-bit elements at once, and one thread a whole field. Frames follow each
 *  other with as many cells as rows of h, of which only those within the lengths are written. */
struct JointBits {
  static constexpr int64_t frames = 4;  ///< of a cell

  int64_t group, groups;  ///< columns of a field, fields of a cell
  int64_t columns;        ///< labels + 1

  JointBits(DType dtype, const TransducerSizes& s)
      : group(16 / static_cast<int64_t>(size_of(dtype))),
        groups(ceil_div(s.classes, group)),
        columns(s.labels + 1) {}

  /** @brief First field of an utterance whose first row of h is `row`. The one before ends there
   *  or earlier: its frames, 4 q + 1 to 4 q + 4 of c <= columns rows each, have q c + c cells. From
   *  its first cell to here are floor(frames c / 4) + columns or more. */
  constexpr int64_t first(int64_t row, int64_t utterance) const {
    return (row / frames + utterance * columns) * groups;
  }
  /** @brief Words of 32 bits that all of them take. */
  int64_t words(const TransducerSizes& s) const {
    return (first(s.rows, s.batch) * group / 2 + 3) / 4;
  }
  static constexpr int bit(int group, int frame, int column) {
    return 2 * group * (column % 2) + frame * group / 2 + column / 2;
  }
};
}  // namespace detail

/** @brief A joint as backends take it. */
struct TransducerJointProblem {
  TransducerSizes sizes;                 ///< classes: n
  Tensor logit_lengths, target_lengths;  ///< undefined where all are full
  TransducerJointOptions options;
  RandomState state = {};  ///< of the forward
};

/// Contiguous f, g, dh. `kept` means nothing where none or all are dropped.
BS_BACKENDS(void transducer_joint(const Tensor& f, const Tensor& g, const Tensor& h,
                                  const Tensor& kept, const TransducerJointProblem& problem,
                                  Stream stream);
            void transducer_joint_backward(const Tensor& f, const Tensor& g, const Tensor& dh,
                                           const Tensor& kept, const Tensor& df, const Tensor& dg,
                                           const TransducerJointProblem& problem, Stream stream))

}  // namespace bs
