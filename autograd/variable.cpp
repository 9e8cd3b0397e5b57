#include <bs/autograd/variable.h>

#include <bs/autograd/tape.h>
#include <bs/autograd/variable_state.h>
#include <bs/kernels/fill.h>
#include <bs/lib/out_of_memory.h>

#include <new>
#include <ostream>
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

VariableState& Variable::state(const char* caller) const {
  BS_CHECK(defined(),
           "{}: a Variable is undefined: nothing was assigned to it, or an option left it out",
           caller);
  return *state_;
}

const Tensor& Variable::data(const char* caller) const { return state(caller).data; }
bool Variable::requires_grad() const { return defined() && state_->requires_grad; }
bool Variable::is_leaf() const { return state().node == 0; }
const Tensor& Variable::grad() const { return state().grad; }

void Variable::set_grad(Tensor gradient) const {
  VariableState& s = state();
  BS_CHECK(!gradient.defined() || gradient.shape() == shape(),
           "variable: gradient of shape {} for data of shape {}", gradient.shape(), shape());
  s.grad = std::move(gradient);
}

void Variable::set_data(Tensor data) const {
  BS_CHECK(state().node == 0, "variable: set_data on the result of an operation; detach it first");
  BS_CHECK(data.defined(), "variable: set_data of an undefined tensor");
  state().data = std::move(data);
}

void Variable::set_requires_grad(bool wanted) const {
  BS_CHECK(state().node == 0,
           "variable: set_requires_grad on the result of an operation; detach it first");
  BS_CHECK(!wanted || is_floating(dtype()), "variable: dtype {} can have no gradient", dtype());
  state().requires_grad = wanted;
}

void Variable::retain_grad() const {
  BS_CHECK(requires_grad(), "variable: retain_grad where no gradient will come");
  state().retain_grad = true;
}

void Variable::register_hook(std::function<Tensor(const Tensor&)> hook) const {
  BS_CHECK(requires_grad(), "variable: register_hook where no gradient will come");
  state().hooks.push_back(std::move(hook));
}

void Variable::backward(BackwardOptions options) const try {
  BS_CHECK(data().numel() == 1,
           "backward: shape {} is no single number; reduce it with sum or mean, or give a gradient",
           shape());
  backward(full(shape(), 1.0, dtype(), device()), options);
} catch (const std::bad_alloc&) {
  out_of_own_memory("backward");
}

void Variable::backward(const Tensor& gradient, BackwardOptions options) const {
  tape().backward(*this, gradient, options);
}

std::string to_string(const Variable& variable) {
  if (!variable.defined()) return "Variable(undefined)";
  return format("Variable({}{})", variable.data(),
                variable.requires_grad() ? ", requires a gradient" : "");
}

std::ostream& operator<<(std::ostream& out, const Variable& variable) {
  return out << to_string(variable);
}

namespace {
thread_local bool recording = true;
}

bool grad_enabled() { return recording; }
NoGrad::NoGrad() : previous_(std::exchange(recording, false)) {}
NoGrad::~NoGrad() { recording = previous_; }
EnableGrad::EnableGrad() : previous_(std::exchange(recording, true)) {}
EnableGrad::~EnableGrad() { recording = previous_; }

}  // namespace bs
