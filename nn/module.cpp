#include <bs/nn/module.h>

#include <bs/kernels/copy.h>

#include <cxxabi.h>

#include <algorithm>
#include <cstdlib>
#include <functional>
#include <memory>
#include <mutex>
#include <set>
#include <typeinfo>
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

/// Modules by their place in memory, but for those that were moved away.
struct Living {
  std::mutex mutex;
  std::set<const Module*, std::less<>> all;
};

Living& living() {
  static auto* const all = new Living;  // modules with static storage outlive any other kind
  return *all;
}

std::string type_name(const Module& module) {
  const char* raw = typeid(module).name();
  const std::unique_ptr<char, void (*)(void*)> readable(
      abi::__cxa_demangle(raw, nullptr, nullptr, nullptr), std::free);
  return readable ? readable.get() : raw;
}

}  // namespace

Module::Module() {
  Living& modules = living();
  const std::lock_guard lock(modules.mutex);
  modules.all.insert(this);
}

Module::Module(Module&& other) noexcept
    : Placed(std::move(other)),
      parameters_(std::move(other.parameters_)),
      buffers_(std::move(other.buffers_)),
      children_(std::move(other.children_)),
      training_(other.training_),
      moved_(std::exchange(other.moved_, true)) {
  for (const auto* entries : {&parameters_, &buffers_})
    for (const Entry& entry : *entries)
      if (entry.member) entry.member->set_owner(this);
  for (const Child& child : children_) child.place->set_owner(this);
  Living& modules = living();
  const std::lock_guard lock(modules.mutex);
  auto node = modules.all.extract(&other);
  if (node.empty()) return;
  node.value() = this;
  modules.all.insert(std::move(node));
}

Module::~Module() {
  Living& modules = living();
  const std::lock_guard lock(modules.mutex);
  modules.all.erase(this);
}

const Variable& Module::Entry::variable() const {
  if (!member) return made;
  BS_CHECK(member->object() != nullptr,
           "module: the member of parameter {} is no more; it must live as long as its module",
           name);
  return static_cast<const Variable&>(*member->object());
}

Module& Module::Child::module() const {
  BS_CHECK(place->object() != nullptr,
           "module: the child {} is no more; it must live as long as its parent, and one that its "
           "parent does not contain stays where it was registered",
           name);
  return static_cast<Module&>(*place->object());
}

bool Module::has_state() const {
  return !parameters_.empty() || !buffers_.empty() ||
         std::any_of(children_.begin(), children_.end(),
                     [](const Child& child) { return child.module().has_state(); });
}

void Module::check_inside(const Module& module, const void* object, size_t bytes) {
  Living& modules = living();
  const std::lock_guard lock(modules.mutex);
  const void* const end = static_cast<const std::byte*>(object) + bytes;
  for (auto at = modules.all.lower_bound(static_cast<const Module*>(object));
       at != modules.all.end() && std::less<>()(static_cast<const void*>(*at), end); ++at)
    BS_CHECK(*at == &module || (*at)->has_place() || !(*at)->has_state(),
             "module: a member of type {} in {} is not registered; call register_module in its "
             "constructor",
             type_name(**at), type_name(module));
}

EvalMode::EvalMode() : previous_(std::exchange(using_modules, true)) {}
EvalMode::~EvalMode() { using_modules = previous_; }

/// Calls f(prefix, module) for this module and all below, parents first.
template <class F>
void Module::visit(const std::string& prefix, F&& f) const {
  f(prefix, *this);
  for (const Child& child : children_) child.module().visit(prefix + child.name + ".", f);
}

/// What the members name now.
std::vector<NamedVariable> Module::current(const std::vector<Entry>& entries) {
  std::vector<NamedVariable> all;
  for (const Entry& entry : entries) {
    const Variable& v = entry.variable();
    if (!v.defined()) continue;
    BS_CHECK(v.is_leaf(), "module: the member of parameter {} is the result of an operation",
             entry.name);
    BS_CHECK(entry.member != nullptr || !entry.held || v.use_count() > 1,
             "module: the member of parameter {} was assigned to, and what it names now is not "
             "registered; give the member to register_parameter, or copy values into it",
             entry.name);
    all.push_back({entry.name, v});
  }
  return all;
}

void Module::note_held() {
  for (auto* list : {&parameters_, &buffers_})
    for (Entry& entry : *list) entry.held = entry.held || entry.made.use_count() > 1;
}

std::vector<NamedVariable> Module::named_parameters() const {
  std::vector<NamedVariable> all;
  visit("", [&](const std::string& prefix, const Module& module) {
    append_new(all, prefix, current(module.parameters_));
  });
  return all;
}

std::vector<NamedVariable> Module::named_buffers() const {
  std::vector<NamedVariable> all;
  visit("", [&](const std::string& prefix, const Module& module) {
    append_new(all, prefix, current(module.buffers_));
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
  for (const Child& child : children_) child.module().train(on);
}

namespace {

/// Replaces the data and the gradient by f of it.
template <class F>
void replace(const Variable& v, F&& f) {
  const Tensor& gradient = v.grad();
  v.set_data(f(v.data()));
  if (gradient.defined()) v.set_grad(f(gradient));
}

void convert(const Variable& v, DType dtype) {
  replace(v, [dtype](const Tensor& x) { return is_floating(x.dtype()) ? cast(x, dtype) : x; });
}

}  // namespace

void Module::to(Device device) {
  check_usable("module", device);
  for (const auto& list : {named_parameters(), named_buffers()})
    for (const NamedVariable& named : list)
      replace(named.variable, [device](const Tensor& x) { return bs::to(x, device); });
}

void Module::to(DType dtype) {
  BS_CHECK(is_floating(dtype), "module: parameters cannot become {}", dtype);
  const std::vector<NamedVariable> parameters = named_parameters();
  named_buffers();  // what is wrong with them is found before anything changes
  for (const NamedVariable& named : parameters) convert(named.variable, dtype);
  visit("", [dtype](const std::string&, const Module& module) {
    for (const Entry& entry : module.buffers_) {
      const bool stays = entry.dtype == BufferDType::at_least_f32 && is_low_precision(dtype);
      if (entry.variable().defined()) convert(entry.variable(), stays ? f32 : dtype);
    }
  });
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

namespace {
Variable made_parameter(const std::string& name, Tensor data) {
  BS_CHECK(is_floating(data.dtype()), "module: parameter {} of dtype {} cannot learn", name,
           data.dtype());
  const bool learns = data.defined();
  return Variable(std::move(data), learns);
}
}  // namespace

void Module::register_parameter(const std::string& name, Variable& member, Tensor data) {
  check_name(name);
  member = made_parameter(name, std::move(data));
  parameters_.push_back({name, {}, std::make_unique<OwnedPlace>(this, member)});
}

void Module::register_buffer(const std::string& name, Variable& member, Tensor data,
                             BufferDType dtype) {
  check_name(name);
  member = Variable(std::move(data));
  buffers_.push_back({name, {}, std::make_unique<OwnedPlace>(this, member), false, dtype});
}

Variable Module::register_parameter(const std::string& name, Tensor data) {
  check_name(name);
  if (!data.defined()) return {};
  note_held();
  parameters_.push_back({name, made_parameter(name, std::move(data)), nullptr});
  return parameters_.back().made;
}

Variable Module::register_buffer(const std::string& name, Tensor data, BufferDType dtype) {
  check_name(name);
  if (!data.defined()) return {};
  note_held();
  buffers_.push_back({name, Variable(std::move(data)), nullptr, false, dtype});
  return buffers_.back().made;
}

/// Whether `module` is this one or below it. Children that are no more lead nowhere.
bool Module::leads_to(const Module& module) const {
  return this == &module ||
         std::any_of(children_.begin(), children_.end(), [&](const Child& child) {
           const Placed* const placed = child.place->object();
           return placed != nullptr && static_cast<const Module*>(placed)->leads_to(module);
         });
}

void Module::add_child(const std::string& name, Module& child) {
  check_name(name);
  BS_CHECK(!child.leads_to(*this), "module: the child {} is its parent, or has it below itself",
           name);
  note_held();
  child.note_held();
  children_.push_back({name, std::make_unique<OwnedPlace>(this, child)});
}

std::string to_string(const Module& module) {
  std::string text;
  std::vector<NamedVariable> seen;
  const auto list = [&](const std::string& prefix, const std::vector<NamedVariable>& variables,
                        const char* what) {
    for (const NamedVariable& v : variables) {
      const size_t before = seen.size();
      append_new(seen, prefix, {v});
      if (seen.size() > before)
        text +=
            format("{}{} {} {}{}\n", prefix, v.name, v.variable.dtype(), v.variable.shape(), what);
    }
  };
  module.visit("", [&](const std::string& prefix, const Module& m) {
    list(prefix, Module::current(m.parameters_), "");
    list(prefix, Module::current(m.buffers_), ", a buffer");
    if (m.parameters_.empty() && m.buffers_.empty() && m.children_.empty() && !prefix.empty())
      text += format("{} {}\n", prefix.substr(0, prefix.size() - 1), type_name(m));
  });
  return text + format("{} elements", module.parameter_count());
}

}  // namespace bs::nn
