#include <bs/nn/module.h>

#include <bs/kernels/copy.h>

#include <algorithm>
#include <utility>

namespace bs::nn {

namespace {

thread_local bool using_modules = false;  ///< whether this thread is in the scope of an EvalMode

/// Adds those of `from` that are not in `to` yet.
void append_new(std::vector<NamedVariable>& to, const std::string& prefix,
                const std::vector<NamedVariable>& from) {
  for (const NamedVariable& candidate : from) {
    const std::string name = prefix + candidate.name;
    const auto found = std::find_if(to.begin(), to.end(), [&](const NamedVariable& known) {
      return known.variable.is_same(candidate.variable) || known.name == name;
    });
    if (found == to.end()) {
      to.push_back({name, candidate.variable});
    } else {
      BS_CHECK(found->variable.is_same(candidate.variable), "module: two tensors have the path {}",
               name);
    }
  }
}

}  // namespace

EvalMode::EvalMode() : previous_(std::exchange(using_modules, true)) {}
EvalMode::~EvalMode() { using_modules = previous_; }

/// Calls f(prefix, module) for this module and all below, parents first.
template <class F>
void Module::visit(const std::string& prefix, F&& f) const {
  f(prefix, *this);
  for (const Child& child : children_) child.module->visit(prefix + child.name + ".", f);
}

std::vector<NamedVariable> Module::named_parameters() const {
  std::vector<NamedVariable> all;
  visit("", [&](const std::string& prefix, const Module& module) {
    append_new(all, prefix, module.parameters_);
  });
  return all;
}

std::vector<NamedVariable> Module::named_buffers() const {
  std::vector<NamedVariable> all;
  visit("", [&](const std::string& prefix, const Module& module) {
    append_new(all, prefix, module.buffers_);
  });
  return all;
}

std::vector<Variable> Module::parameters() const {
  std::vector<Variable> all;
  for (NamedVariable& p : named_parameters()) all.push_back(std::move(p.variable));
  return all;
}

int64_t Module::parameter_count() const {
  int64_t count = 0;
  for (const Variable& p : parameters()) count += p.data().numel();
  return count;
}

bool Module::training() const { return training_ && !using_modules; }

void Module::train(bool on) {
  training_ = on;
  for (const Child& child : children_) child.module->train(on);
}

/// Replaces the data and the gradient of every parameter and buffer by f of it.
template <class F>
void Module::convert(F&& f) {
  for (const auto& list : {named_parameters(), named_buffers()})
    for (const NamedVariable& named : list) {
      const Variable& v = named.variable;
      const Tensor gradient = v.grad();
      v.set_data(f(v.data()));
      if (gradient.defined()) v.set_grad(f(gradient));
    }
}

void Module::to(Device device) {
  check_usable("module", device);
  convert([device](const Tensor& x) { return bs::to(x, device); });
}

void Module::to(DType dtype) {
  BS_CHECK(is_floating(dtype), "module: parameters cannot become {}", dtype);
  convert([dtype](const Tensor& x) { return is_floating(x.dtype()) ? cast(x, dtype) : x; });
}

void Module::zero_grad() const {
  for (const Variable& p : parameters()) p.zero_grad();
}

void Module::check_name(const std::string& name) const {
  BS_CHECK(!name.empty(), "module: a parameter, buffer or child needs a name");
  const auto taken = [&](const auto& list) {
    return std::any_of(list.begin(), list.end(), [&](const auto& e) { return e.name == name; });
  };
  BS_CHECK(!taken(parameters_) && !taken(buffers_) && !taken(children_),
           "module: the name {} is taken", name);
}

Variable Module::register_parameter(const std::string& name, Tensor data) {
  check_name(name);
  if (!data.defined()) return {};
  BS_CHECK(is_floating(data.dtype()), "module: parameter {} of dtype {} cannot learn", name,
           data.dtype());
  parameters_.push_back({name, Variable(std::move(data), true)});
  return parameters_.back().variable;
}

Variable Module::register_buffer(const std::string& name, Tensor data) {
  check_name(name);
  if (!data.defined()) return {};
  buffers_.push_back({name, Variable(std::move(data))});
  return buffers_.back().variable;
}

void Module::register_module(const std::string& name, Module& child) {
  check_name(name);
  children_.push_back({name, &child});
}

std::string to_string(const Module& module) {
  std::string text;
  for (const NamedVariable& p : module.named_parameters())
    text += format("{} {} {}\n", p.name, p.variable.dtype(), p.variable.shape());
  for (const NamedVariable& b : module.named_buffers())
    text += format("{} {} {}, a buffer\n", b.name, b.variable.dtype(), b.variable.shape());
  return text + format("{} elements", module.parameter_count());
}

}  // namespace bs::nn
