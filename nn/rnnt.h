#pragma once
/** @file The recurrent neural network transducer (Graves, Sequence transduction with recurrent
 *  neural networks, 2012): an encoder of sound, a network that predicts text, and what joins them.
 */
#include <bs/autograd/transducer_joint.h>
#include <bs/autograd/transducer_loss.h>
#include <bs/nn/embedding.h>
#include <bs/nn/linear.h>
#include <bs/nn/lstm.h>

namespace bs::nn {

/** @brief Extents of the model. The defaults are `testing()`. */
struct RNNTOptions {
  int64_t features = 240;  ///< of a frame of sound
  int64_t encoder_hidden = 1024;
  int pre_layers = 2;   ///< LSTM layers at the frame rate of the features
  int stack = 2;        ///< frames then put side by side, which divides the rate
  int post_layers = 3;  ///< LSTM layers after that
  int64_t prediction_hidden = 512;
  int prediction_layers = 2;
  int64_t joint = 512;
  int64_t classes = 1024;  ///< tokens and the blank, which is the last
  double encoder_dropout = 0.1;
  double prediction_dropout = 0.3;
  double joint_dropout = 0.3;
  double lstm_scale = 0.5;  ///< initial LSTM parameters are multiplied by it, forget biases not
  double forget_bias = 1;
  DType dtype = f32;
  Device device = Device::cpu();

  /** @brief 49,006,080 parameters. */
  static RNNTOptions testing() { return {}; }
  /** @brief 84,690,432 parameters. */
  static RNNTOptions base();
  /** @brief 195,590,400 parameters. */
  static RNNTOptions large();
  /** @brief Elements of all parameters, without making them. */
  int64_t parameter_count() const;
};

/** @brief A batch of features with their texts. */
struct RNNTBatch {
  Variable features;      ///< [batch, frames, features] of the model's dtype
  Tensor lengths;         ///< [batch] i64, on the host; see RNNTLossOptions::packed
  Tensor targets;         ///< [batch, longest] i32 or i64: tokens, zeros where there are none
  Tensor target_lengths;  ///< [batch] i64, likewise
};

struct RNNTLossOptions {
  TransducerLossOptions transducer = {.reduction = Reduction::mean};
  /** Parts the batch is cut into where frames and tokens meet: the logits of one part only are in
   *  memory at a time. Loss and gradients are those of the whole batch, dropout included, up to the
   *  order of sums over utterances: see part_by_part. More parts than utterances are none. */
  int split = 1;
  /** Whether logits have only the rows that lengths ask for. The host counts these, so the lengths
   *  lie there. Without, all utterances have the rows of the longest, which changes no loss but by
   *  rounding. Then both lengths may lie on the model's device, where nobody checks them: an
   *  utterance whose lengths do not fit has a loss of NaN. Nothing waits for a device then, and a
   *  cuda::Graph can record a step. */
  bool packed = true;
  /** Rows of a part's packed logits, RNNT::packed_rows or more; -1: the host counts them. Where
   *  they are given, lengths may lie on the device, and steps of other lengths have one shape. */
  int64_t rows = -1;
};

/** @brief pre_rnn, stacking of frames, post_rnn and joint_enc; embedding, prediction_rnn and
 *  joint_pred; then joint_net over relu(f + g). */
class RNNT : public Module {
 public:
  using Options = RNNTOptions;
  /** @throws Error when extents make no sense. */
  explicit RNNT(const Options& options);

  /** @brief The LSTM states between two pieces of sound; undefined at the beginning. */
  struct EncoderState {
    LSTMState pre, post;
  };
  struct Encoded {
    Variable f;      ///< [batch, ceil(frames / stack), joint]
    Tensor lengths;  ///< [batch] i64, where the lengths given are, or on the host
    EncoderState state;
  };
  struct Predicted {
    Variable g;  ///< [batch, tokens (+ 1 at the beginning), joint]
    LSTMState state;
  };

  /** @param[in] features [batch, frames, features]
   *  @param[in] lengths [batch] i64 on the host; undefined: all frames. Past them f is of no use.
   *  @param[in] state of the piece before. Its frames were a multiple of `stack`: others are filled
   *  up with zeros, which would lie in the middle of the sound. */
  Encoded encode(const Variable& features, const Tensor& lengths = {},
                 const EncoderState& state = {}) const;
  /** @brief The text so far as the joint sees it: before any token, and after each.
   *  @param[in] tokens [batch, count] i64 or i32
   *  @param[in] state after the tokens before; undefined: this is the beginning, and g starts with
   *  the answer to no token at all */
  Predicted predict(const Tensor& tokens, const LSTMState& state = {}) const;
  /** @brief Logits [batch, frames, tokens, classes] of f [batch, frames, joint] and g [batch,
   *  tokens, joint]. */
  Variable joint(const Variable& f, const Variable& g) const;
  /** @brief The most rows of packed logits that one of `split` parts of a batch needs.
   *  @param[in] lengths,target_lengths those of an RNNTBatch, on the host */
  int64_t packed_rows(const Tensor& lengths, const Tensor& target_lengths, int split = 1) const;
  /** @brief -log p(text | sound), averaged over the batch (or summed, as `options` says).
   *  @throws Error when shapes do not fit. */
  Variable loss(const RNNTBatch& batch, const RNNTLossOptions& options = {}) const;
  /** @brief The same with the encoder's part done. */
  Variable loss(const Encoded& encoded, const RNNTBatch& batch,
                const RNNTLossOptions& options = {}) const;

  const Options& options() const { return options_; }
  int64_t blank() const { return options_.classes - 1; }

  LSTM pre_rnn, post_rnn;
  Linear joint_enc;
  Embedding embedding;  ///< the blank has no row
  LSTM prediction_rnn;
  Linear joint_pred, joint_net;

 private:
  Encoded encode(const Variable& features, const Tensor& lengths, const EncoderState& state,
                 bool states) const;
  TransducerJointOptions joint_options() const;
  Options options_;
};

/** @brief `factor` steps side by side: [steps, batch, n] -> [ceil(steps / factor), batch, factor
 * n], zeros after the end. */
Variable stack_time(const Variable& x, int factor);

}  // namespace bs::nn
