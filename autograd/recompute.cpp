#include <bs/autograd/recompute.h>
#include <bs/autograd/saved_tensor.h>
#include <bs/autograd/tape_node.h>
#include <bs/lib/recording.h>

#include <algorithm>
#include <utility>

namespace bs {

namespace {

/// While it lives, `generator` hands out the numbers after `state`.
class Rewound {
 public:
  Rewound(Generator& generator, RandomState state)
      : generator_(generator), after_(generator.state()) {
    generator_.set_state(state);
  }
  ~Rewound() { generator_.set_state(after_); }
  Rewound(const Rewound&) = delete;
  Rewound& operator=(const Rewound&) = delete;

 private:
  Generator& generator_;
  RandomState after_;
};

/// The gradients for `inputs`, which are leaves: undefined for those that want none.
Grads gradients_of(const Variable& result, const std::vector<Variable>& inputs, const Tensor& dy) {
  Grads gradients(inputs.size());
  if (!result.requires_grad()) return gradients;
  std::vector<Variable> wanted;
  for (const Variable& v : inputs)
    if (v.requires_grad()) wanted.push_back(v);
  Grads found = detail::inner_gradients(result, wanted, dy);
  for (size_t i = 0, next = 0; i < inputs.size(); ++i)
    if (inputs[i].requires_grad()) gradients[i] = std::move(found[next++]);
  return gradients;
}

}  // namespace

Variable recompute(std::function<Variable(const std::vector<Variable>&)> part,
                   const std::vector<Variable>& inputs, Generator& generator) {
  BS_CHECK(part, "recompute: there is no function to call");
  const bool wanted = grad_enabled() && std::any_of(inputs.begin(), inputs.end(),
                                                    std::mem_fn(&Variable::requires_grad));
  if (!wanted) return part(inputs);
  BS_CHECK(!Recording::current(),
           "recompute: random numbers of a graph can't be drawn twice; record the part without it");
  const RandomState state = generator.state();
  Tensor y;
  {
    const NoGrad no_grad;
    y = part(inputs).data();
  }
  std::vector<Variable> again;
  again.reserve(inputs.size());
  for (const Variable& v : inputs)
    again.push_back(v.defined() ? Variable(v.data(), v.requires_grad()) : Variable());
  return tape().record("recompute", inputs, y,
                       [part = std::move(part), again, saved = SavedInputs(inputs), state,
                        &generator](const Tensor& dy) {
                         saved.check();
                         const EnableGrad enable_grad;
                         Variable result;
                         {
                           const Rewound rewound(generator, state);
                           result = part(again);
                         }
                         return gradients_of(result, again, dy);
                       });
}

}  // namespace bs
