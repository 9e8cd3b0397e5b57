#pragma once
/** @file An RNNT and one utterance, whole or as it is spoken, for the decoders. */
#include <bs/nn/decode/transducer_decode.h>
#include <bs/nn/rnnt.h>

namespace bs::decode {

/** @brief Encodes sound as it arrives and answers the decoders' questions about it. Nothing is
 *  recorded; put the model into eval mode. */
class RNNTScorer : public TransducerScorer {
 public:
  /** @param[in] model kept by reference */
  explicit RNNTScorer(const nn::RNNT& model);
  /** @brief Takes in the next piece of sound. Frames that fill no stack wait for the next piece.
   *  @param[in] features [frames, features], on the host or the model's device, of any floating
   *  dtype. The encoder frames of the pieces are those of the whole. */
  void append(const Tensor& features);
  /** @brief The sound has ended: zeros fill the last stack. */
  void finish();

  int64_t frames() const override { return static_cast<int64_t>(encoded_.size()); }
  int64_t blank() const override { return model_.blank(); }
  PredictionPtr start() const override;
  PredictionPtr next(const PredictionPtr& state, int64_t token) const override;
  std::vector<float> logits(int64_t frame, const PredictionPtr& state) const override;

 private:
  void encode(const Tensor& features);
  const nn::RNNT& model_;
  nn::RNNT::EncoderState state_;
  Tensor waiting_;               ///< frames of a stack that is not full yet
  std::vector<Tensor> encoded_;  ///< [1, 1, joint] each
};

}  // namespace bs::decode
