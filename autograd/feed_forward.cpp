#include <bs/autograd/feed_forward.h>

#include <bs/autograd/activation.h>
#include <bs/autograd/linear.h>
#include <bs/autograd/recorded.h>
#include <bs/kernels/feed_forward.h>

namespace bs {

namespace {

/// Of x, weight1, bias1, weight2 and bias2.
struct FeedForwardRule {
  SavedInputs saved;
  Tensor x;
  FeedForwardWeights weights;
  FeedForwardResult forward;

  Grads operator()(const Tensor& dy) const {
    saved.check();
    FeedForwardGrads g = feed_forward_backward(x, weights, forward, dy);
    return {g.dx, g.dweight1, g.dbias1, g.dweight2, g.dbias2};
  }
  VariableGrads again(const Recorded& r) const {
    saved.check();
    const auto& [weight1, bias1, weight2, bias2] = weights;
    const Tensor constants[] = {x, weight1, bias1, weight2, bias2};
    return by_definition(r, [&](std::span<const Variable> in) {
      const auto at = [&](size_t i) { return in[i].defined() ? in[i] : Variable(constants[i]); };
      return linear(gelu(linear(at(0), at(1), at(2)), Gelu::tanh), at(3), at(4));
    });
  }
};

}  // namespace

Variable feed_forward(const Variable& x, const Variable& weight1, const Variable& bias1,
                      const Variable& weight2, const Variable& bias2) {
  const FeedForwardWeights weights{weight1.data(), bias1.data(), weight2.data(), bias2.data()};
  FeedForwardResult forward = feed_forward(x.data(), weights);
  const Tensor y = std::move(forward.y);
  const Variable inputs[] = {x, weight1, bias1, weight2, bias2};
  return tape().record("feed_forward", inputs, y,
                       FeedForwardRule{SavedInputs(inputs), x.data(), weights, forward});
}

}  // namespace bs
