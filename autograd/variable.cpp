#include <bs/autograd/tape.h>
#include <bs/autograd/variable.h>
#include <bs/autograd/variable_state.h>
#include <bs/kernels/accumulate.h>
#include <bs/kernels/copy.h>
#include <bs/kernels/fill.h>

#include <utility>

namespace bs {

using detail::VariableState;

Variable::Variable(Tensor data) : Variable(std::move(data), false) {}

Variable::Variable(Tensor data, bool requires_grad) {
  if (!data.defined()) return;
  state_ = std::make_shared<VariableState>();
  state_->data = std::move(data);
  if (requires_grad) set_requires_grad(true);
}

const VariableState& Variable::state() const {
  BS_CHECK(defined(), "variable: undefined variable used");
  return *state_;
}

const Tensor& Variable::data() const { return state().data; }
bool Variable::requires_grad() const { return defined() && state_->requires_grad; }
bool Variable::is_leaf() const { return state().node == 0; }
const Tensor& Variable::grad() const { return state().grad; }

void Variable::set_grad(Tensor gradient) const {
  BS_CHECK(!gradient.defined() || gradient.shape() == shape(),
           "variable: gradient of shape {} for data of shape {}", gradient.shape(), shape());
  state_->grad = std::move(gradient);
  state_->owns_grad = false;
}

void Variable::set_data(Tensor data) const {
  BS_CHECK(is_leaf(), "variable: set_data on the result of an operation; detach it first");
  state_->data = std::move(data);
}

void Variable::set_requires_grad(bool wanted) const {
  BS_CHECK(is_leaf(), "variable: set_requires_grad on the result of an operation; detach it first");
  BS_CHECK(!wanted || is_floating(dtype()), "variable: dtype {} can have no gradient", dtype());
  state_->requires_grad = wanted;
}

void Variable::retain_grad() const {
  BS_CHECK(requires_grad(), "variable: retain_grad where no gradient will come");
  state_->retain_grad = true;
}

void Variable::register_hook(std::function<Tensor(const Tensor&)> hook) const {
  BS_CHECK(requires_grad(), "variable: register_hook where no gradient will come");
  state_->hooks.push_back(std::move(hook));
}

void Variable::backward(BackwardOptions options) const {
  BS_CHECK(data().numel() == 1, "backward: a start of shape {} needs a gradient to start from",
           shape());
  backward(full(shape(), 1.0, dtype(), device()), options);
}

void Variable::backward(const Tensor& gradient, BackwardOptions options) const {
  tape().backward(*this, gradient, options);
}

namespace {
thread_local bool recording = true;
}

bool grad_enabled() { return recording; }
NoGrad::NoGrad() : previous_(std::exchange(recording, false)) {}
NoGrad::~NoGrad() { recording = previous_; }

namespace detail {

void add_gradient(VariableState& state, Tensor gradient) {
  if (!state.grad.defined()) {
    // The same tensor may have gone to another input as well: it is ours to read, not to add to.
    state.grad = std::move(gradient);
    state.owns_grad = false;
    return;
  }
  if (!state.owns_grad) {
    state.grad = clone(state.grad);
    state.owns_grad = true;
  }
  accumulate(state.grad, contiguous(gradient));
}

void run_hooks(VariableState& state) {
  for (const auto& hook : state.hooks)
    if (Tensor replaced = hook(state.grad); replaced.defined()) {
      state.grad = std::move(replaced);
      state.owns_grad = false;
    }
}

}  // namespace detail

}  // namespace bs
