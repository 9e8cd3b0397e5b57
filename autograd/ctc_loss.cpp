#include <bs/autograd/ctc_loss.h>
#include <bs/autograd/saved_tensor.h>
#include <bs/autograd/tape.h>

namespace bs {

Variable ctc_loss(const Variable& x, const Tensor& targets, const Tensor& input_lengths,
                  const Tensor& target_lengths, const CtcLossOptions& options) {
  CtcLossResult result = ctc_loss(x.data(), targets, input_lengths, target_lengths, options);
  return tape().record(
      "ctc_loss", {x}, result.loss,
      [x = SavedTensor(x.data()), input_lengths = SavedTensor(input_lengths),
       target_lengths = SavedTensor(target_lengths), targets = SavedTensor(result.targets), result,
       options](const Tensor& dloss) {
        static_cast<void>(targets.get());  // result.targets may be the caller's own
        return Grads{ctc_loss_backward(x, input_lengths, target_lengths, result, dloss, options)};
      });
}

}  // namespace bs
