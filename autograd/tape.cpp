#include <bs/autograd/tape.h>
#include <bs/autograd/variable_state.h>

#include <algorithm>
#include <utility>

namespace bs {

using detail::VariableState;

/// One operation. It keeps its inputs alive; its outputs only as long as somebody else does.
struct Tape::Node {
  uint64_t id = 0;
  const char* name = "";
  std::vector<StatePointer> inputs;
  std::vector<std::weak_ptr<VariableState>> outputs;
  BackwardMany backward;  ///< empty once it ran and was freed

  bool reachable() const {
    return std::any_of(outputs.begin(), outputs.end(), [](const auto& o) { return !o.expired(); });
  }
  void free() {
    backward = nullptr;
    inputs.clear();
  }
};

Tape::Tape() = default;
Tape::~Tape() { clear(); }

Tape& Tape::current() {
  thread_local Tape tape;
  return tape;
}

size_t Tape::size() const { return nodes_.size(); }

void Tape::clear() {
  // From the end, so that no chain of captures is released recursively.
  while (!nodes_.empty()) nodes_.pop_back();
}

bool Tape::wanted(std::span<const Variable> inputs) {
  return grad_enabled() && std::any_of(inputs.begin(), inputs.end(),
                                       [](const Variable& v) { return v.requires_grad(); });
}

Variable Tape::record(const char* name, std::initializer_list<Variable> inputs, Tensor y,
                      Backward backward) {
  return record(name, std::span(inputs.begin(), inputs.size()), std::move(y), std::move(backward));
}

Variable Tape::record(const char* name, std::span<const Variable> inputs, Tensor y,
                      Backward backward) {
  if (!wanted(inputs)) return Variable(std::move(y));
  return record_many(name, inputs, {std::move(y)},
                     [b = std::move(backward)](const Grads& dys) { return b(dys.front()); })
      .front();
}

std::vector<Variable> Tape::record_many(const char* name, std::span<const Variable> inputs,
                                        std::vector<Tensor> outputs, BackwardMany backward) {
  std::vector<Variable> results;
  results.reserve(outputs.size());
  for (Tensor& y : outputs) results.emplace_back(std::move(y));
  if (!wanted(inputs)) return results;
  if (nodes_.size() >= drop_at_ && !running_) drop_unreachable();
  Node node;
  node.id = next_id_++;
  node.name = name;
  node.backward = std::move(backward);
  for (const Variable& v : inputs) node.inputs.push_back(v.state_);
  for (Variable& v : results) {
    v.state_->requires_grad = true;
    v.state_->node = node.id;
    node.outputs.push_back(v.state_);
  }
  nodes_.push_back(std::move(node));
  return results;
}

void Tape::drop_unreachable() {
  // From the end: dropping a node releases its inputs, which may make earlier ones unreachable.
  for (size_t i = nodes_.size(); i-- > 0;)
    if (!nodes_[i].reachable()) nodes_[i].free();
  std::erase_if(nodes_, [](const Node& n) { return !n.backward; });
  drop_at_ = std::max<size_t>(1024, 2 * nodes_.size());
}

size_t Tape::find(uint64_t id) const {
  const auto at =
      std::lower_bound(nodes_.begin(), nodes_.end(), id,
                       [](const Node& n, uint64_t wanted_id) { return n.id < wanted_id; });
  const bool found = at != nodes_.end() && at->id == id && at->backward;
  BS_CHECK(found,
           "backward: the graph of this variable is gone: an earlier backward has freed it, or it "
           "was recorded by another thread; pass retain_graph to run backward twice");
  return static_cast<size_t>(at - nodes_.begin());
}

void Tape::deliver(const Node& node, size_t input, Tensor gradient) {
  const StatePointer& state = node.inputs[input];
  if (!gradient.defined() || !state || !state->requires_grad) return;
  const Tensor& data = state->data;
  BS_CHECK(gradient.shape() == data.shape() && gradient.dtype() == data.dtype() &&
               gradient.device() == data.device(),
           "backward of {}: gradient {} for input {}, which is {}", node.name, gradient, input,
           data);
  add_gradient(*state, std::move(gradient));
}

void Tape::run(Node& node, bool retain) {
  Grads dys;
  bool any = false;
  for (const auto& weak : node.outputs) {
    Tensor dy;
    if (const StatePointer output = weak.lock(); output && output->grad.defined()) {
      run_hooks(*output);
      dy = output->grad;
      if (!output->retain_grad) output->grad = {};
    }
    any = any || dy.defined();
    dys.push_back(std::move(dy));
  }
  if (!any) return;
  for (const StatePointer& input : node.inputs)
    if (input && input->requires_grad && input->node != 0) find(input->node);
  Grads gradients = node.backward(dys);
  BS_CHECK(gradients.size() == node.inputs.size(), "backward of {}: {} gradients for {} inputs",
           node.name, gradients.size(), node.inputs.size());
  for (size_t i = 0; i < gradients.size(); ++i) deliver(node, i, std::move(gradients[i]));
  if (!retain) node.free();
}

void Tape::backward(const Variable& from, const Tensor& gradient, BackwardOptions options) {
  BS_CHECK(from.requires_grad(), "backward: this variable requires no gradient");
  BS_CHECK(gradient.shape() == from.shape() && gradient.dtype() == from.dtype(),
           "backward: gradient {} for a variable {}", gradient, from.data());
  BS_CHECK(!running_, "backward: called from within a backward");
  detail::VariableState& start = *from.state_;
  if (from.is_leaf()) {
    detail::add_gradient(start, gradient);
    return;
  }
  const NoGrad no_grad;
  const size_t last = find(start.node);
  struct Running {
    bool& flag;
    explicit Running(bool& f) : flag(f) { flag = true; }
    ~Running() { flag = false; }
  } running(running_);
  detail::add_gradient(start, gradient);
  for (size_t i = last + 1; i-- > 0;)
    if (nodes_[i].backward) run(nodes_[i], options.retain_graph);
  std::erase_if(nodes_, [](const Node& n) { return !n.backward; });
}

}  // namespace bs
