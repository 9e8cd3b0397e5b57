#include <bs/autograd/recompute.h>
#include <bs/autograd/saved_tensor.h>
#include <bs/autograd/tape.h>
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

}  // namespace

Variable recompute(std::function<Variable(const std::vector<Variable>&)> part,
                   const std::vector<Variable>& inputs, Generator& generator) {
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
                         if (result.requires_grad()) result.backward(dy);
                         Grads gradients;
                         for (const Variable& v : again) {
                           gradients.push_back(v.defined() ? v.grad() : Tensor());
                           if (v.defined()) v.zero_grad();
                         }
                         return gradients;
                       });
}

}  // namespace bs
