#include <bs/autograd/feed_forward.h>
#include <bs/autograd/saved_tensor.h>
#include <bs/autograd/tape.h>
#include <bs/kernels/feed_forward.h>

namespace bs {

Variable feed_forward(const Variable& x, const Variable& weight1, const Variable& bias1,
                      const Variable& weight2, const Variable& bias2) {
  const FeedForwardWeights weights{weight1.data(), bias1.data(), weight2.data(), bias2.data()};
  FeedForwardResult forward = feed_forward(x.data(), weights);
  const Tensor y = std::move(forward.y);
  const Variable inputs[] = {x, weight1, bias1, weight2, bias2};
  return tape().record(
      "feed_forward", inputs, y,
      [x = x.data(), saved = SavedInputs(inputs), weights, forward](const Tensor& dy) {
        saved.check();
        FeedForwardGrads g = feed_forward_backward(x, weights, forward, dy);
        return Grads{g.dx, g.dweight1, g.dbias1, g.dweight2, g.dbias2};
      });
}

}  // namespace bs
