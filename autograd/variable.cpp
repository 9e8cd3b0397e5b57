#include <bs/autograd/variable.h>

#include <bs/autograd/tape.h>
#include <bs/autograd/variable_state.h>
#include <bs/kernels/fill.h>
#include <bs/lib/out_of_memory.h>

#include <new>
#include <ostream>
#include <utility>

namespace bs {

using detail::GraphPlace;
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

GraphPlace& Variable::place(const char* caller) const {
  VariableState& s = state(caller);
  if (!s.place) {
    s.place = std::make_shared<GraphPlace>();
    s.place->values = WeakTensor(s.data);
    s.place->variable = state_;
  }
  return *s.place;
}

bool Variable::has_data() const { return defined() && state_->data.defined(); }

const Tensor& Variable::data(const char* caller) const {
  const VariableState& s = state(caller);
  BS_CHECK(s.data.defined(),
           "{}: the values of this {} {} are gone: no operation has saved them for backward",
           caller, s.place->values.dtype(), s.place->values.shape());
  return s.data;
}

const Shape& Variable::shape(const char* caller) const {
  const VariableState& s = state(caller);
  return s.data.defined() ? s.data.shape() : s.place->values.shape();
}

DType Variable::dtype(const char* caller) const {
  const VariableState& s = state(caller);
  return s.data.defined() ? s.data.dtype() : s.place->values.dtype();
}

Device Variable::device(const char* caller) const {
  const VariableState& s = state(caller);
  return s.data.defined() ? s.data.device() : s.place->values.device();
}

bool Variable::requires_grad() const {
  return defined() && state_->place && state_->place->requires_grad;
}

bool Variable::is_leaf() const {
  const VariableState& s = state();
  return !s.place || s.place->node == 0;
}

const Tensor& Variable::grad() const {
  static const Tensor none;
  const VariableState& s = state();
  return s.place ? s.place->grad : none;
}

void Variable::set_grad(Tensor gradient) const {
  const VariableState& s = state();
  BS_CHECK(!gradient.defined() || gradient.shape() == shape(),
           "variable: gradient of shape {} for data of shape {}", gradient.shape(), shape());
  BS_CHECK(!gradient.defined() || (gradient.dtype() == dtype() && gradient.device() == device()),
           "variable: gradient of {} on {} for data of {} on {}", gradient.dtype(),
           gradient.device(), dtype(), device());
  if (s.place || gradient.defined()) place().grad = std::move(gradient);
}

void Variable::set_data(Tensor data) const {
  VariableState& s = state();
  BS_CHECK(is_leaf(), "variable: set_data on the result of an operation; detach it first");
  BS_CHECK(data.defined(), "variable: set_data of an undefined tensor");
  BS_CHECK(!requires_grad() || is_floating(data.dtype()),
           "variable: set_data of dtype {}, which can have no gradient, where one is required",
           data.dtype());
  if (s.place) s.place->values = WeakTensor(data);
  s.data = std::move(data);
}

void Variable::set_requires_grad(bool wanted) const {
  const VariableState& s = state();
  BS_CHECK(is_leaf(), "variable: set_requires_grad on the result of an operation; detach it first");
  BS_CHECK(!wanted || is_floating(dtype()), "variable: dtype {} can have no gradient", dtype());
  if (wanted || s.place) place().requires_grad = wanted;
}

void Variable::retain_grad() const {
  BS_CHECK(requires_grad(), "variable: retain_grad where no gradient will come");
  place().retain_grad = true;
}

void Variable::register_hook(std::function<Tensor(const Tensor&)> hook) const {
  BS_CHECK(hook, "variable: register_hook of no function");
  BS_CHECK(requires_grad(), "variable: register_hook where no gradient will come");
  place().hooks.push_back(std::move(hook));
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

Tensor data_of(const Variable& variable) { return variable.defined() ? variable.data() : Tensor(); }

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
