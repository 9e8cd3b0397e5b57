#include <bs/autograd/transducer_loss.h>

#include <bs/autograd/saved_tensor.h>
#include <bs/autograd/tape.h>

namespace bs {

Variable transducer_loss(const Variable& logits, const Tensor& targets, const Tensor& logit_lengths,
                         const Tensor& target_lengths, const TransducerLossOptions& options,
                         bool in_place) {
  TransducerLossResult result =
      transducer_loss(logits.data(), targets, logit_lengths, target_lengths, options);
  const auto written = std::make_shared<bool>(false);
  return tape().record(
      "transducer_loss", {logits}, result.loss,
      [x = SavedTensor(logits.data()), targets = SavedTensor(targets), result, options, in_place,
       written](const Tensor& dloss) {
        BS_CHECK(!*written,
                 "transducer_loss: a second backward, but the first has written "
                 "the gradient over the logits");
        *written = in_place;
        return Grads{transducer_loss_backward(x, targets, result, dloss, options, in_place)};
      });
}

}  // namespace bs
