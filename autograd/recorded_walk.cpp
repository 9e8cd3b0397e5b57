#include <bs/autograd/anomaly.h>
#include <bs/autograd/binary.h>
#include <bs/autograd/saved_tensor.h>
#include <bs/autograd/tape_node.h>
#include <bs/lib/changes.h>
#include <bs/lib/out_of_memory.h>
#include <bs/lib/trace.h>

#include <algorithm>
#include <functional>
#include <map>
#include <new>
#include <unordered_map>
#include <utility>

namespace bs {

using detail::check_gradient;
using detail::GraphPlace;
using detail::PlacePointer;
using detail::VariableState;

/// A backward over variables, whose operations are recorded. It goes only where an input lies.
class Tape::RecordedWalk {
 public:
  RecordedWalk(const Tape& tape, std::span<const Variable> from, std::span<const Variable> inputs,
               uint64_t since) {
    for (const Variable& input : inputs) kept_[input.state_->place.get()];
    for (const Variable& start : from) expect(start.state_->place, since);
    for (auto& [number, node] : nodes_) {  // grows behind us: inputs are older than their node
      const auto found = tape.nodes_.find(number);
      BS_CHECK(found != tape.nodes_.end(),
               "differentiable_grad: the graph of this variable is gone: an earlier backward has "
               "freed it, or it was recorded by another thread; pass retain_graph to the former");
      node = found->second;
      for (const PlacePointer& input : node->inputs)
        if (input) expect(input, since);
    }
    find_way();
  }

  void deliver(const char* name, const PlacePointer& to, const Variable& gradient) {
    if (!gradient.defined()) return;
    check_gradient(name, gradient.data(), to->values);
    Variable& total = sums_[to.get()];
    total = total.defined() ? bs::add(total, gradient) : gradient;
  }

  void run() {
    for (const auto& [number, node] : nodes_) {
      VariableGrads dys, outputs;
      for (const auto& output : node->outputs) {
        const PlacePointer place = output.lock();
        outputs.push_back(variable(place));
        dys.push_back(take(place));
      }
      if (std::ranges::any_of(dys, [](const Variable& dy) { return dy.defined(); }))
        step(*node, dys, outputs);
    }
  }

  /// The whole gradient of an input, once all has run.
  Variable result(const Variable& input) {
    const Variable gradient = take(input.state_->place);
    return gradient.defined() ? gradient : kept_.at(input.state_->place.get());
  }

 private:
  /// The variable at a place: without values where nobody holds them and no operation saved them.
  static Variable variable(const PlacePointer& place) {
    Variable v;
    if (!place) return v;
    v.state_ = place->variable.lock();
    if (!v.state_)
      v.state_ = std::make_shared<VariableState>(VariableState{place->values.lock(), place});
    return v;
  }
  void expect(const PlacePointer& state, uint64_t since) {
    if (state->node > since) nodes_[state->node];
  }

  /// Drops operations that no input has a part in, and finds those without a recorded backward.
  void find_way() {
    std::unordered_map<uint64_t, bool> leads;
    for (auto at = nodes_.rbegin(); at != nodes_.rend(); ++at)  // the oldest first
      leads[at->first] = std::ranges::any_of(at->second->inputs, [&](const PlacePointer& input) {
        return input && (kept_.contains(input.get()) || leads[input->node]);
      });
    std::erase_if(nodes_, [&](const auto& entry) { return !leads[entry.first]; });
    for (const auto& [number, node] : nodes_)
      BS_CHECK(node->again,
               "differentiable_grad: the backward of {} is not recorded, so there is no second "
               "derivative of it; take it by differences of first ones",
               node->name);
  }

  Variable take(const PlacePointer& of) {
    const auto found = sums_.find(of.get());
    if (found == sums_.end()) return {};
    Variable total = std::move(found->second);
    sums_.erase(found);
    for (size_t i = 0, count = of->hooks.size(); i < count; ++i) {
      const auto hook = of->hooks[i];  // a copy: it may register another, which moves the list
      BS_CHECK(!hook(total.data()).defined(),
               "differentiable_grad: a hook gave another gradient, which is not recorded");
    }
    const auto asked = kept_.find(of.get());
    if (asked != kept_.end()) asked->second = total;
    return total;
  }

  void step(const Node& node, const VariableGrads& dys, const VariableGrads& outputs) {
    VariableGrads inputs;
    for (const PlacePointer& input : node.inputs) inputs.push_back(variable(input));
    const detail::RunningBackward running(node.name);
    const VariableGrads gradients =
        node.again(node.one, node.many, Recorded(dys, inputs, outputs, node.moment));
    if (detecting_anomaly()) detail::check_gradients(node.name, tensors(dys), tensors(gradients));
    BS_CHECK(gradients.size() == inputs.size(),
             "differentiable_grad: {} gave {} gradients for {} inputs", node.name, gradients.size(),
             inputs.size());
    for (size_t i = 0; i < inputs.size(); ++i)
      if (node.inputs[i]) deliver(node.name, node.inputs[i], gradients[i]);
  }
  static Grads tensors(const VariableGrads& variables) {
    Grads all;
    for (const Variable& v : variables) all.push_back(data_of(v));
    return all;
  }

  std::map<uint64_t, std::shared_ptr<Node>, std::greater<>> nodes_;
  std::unordered_map<GraphPlace*, Variable> sums_;
  std::unordered_map<GraphPlace*, Variable> kept_;  ///< of the inputs
};

VariableGrads Tape::recorded_gradients(std::span<const Variable> from,
                                       std::span<const Variable> inputs,
                                       std::span<const Variable> gradients, uint64_t since) try {
  RecordedWalk walk(*this, from, inputs, since);
  const TraceRange range("differentiable_grad");
  const EnableGrad enable_grad;
  for (size_t i = 0; i < from.size(); ++i)
    walk.deliver("the caller", from[i].state_->place, gradients[i]);
  walk.run();
  VariableGrads all;
  for (const Variable& input : inputs) all.push_back(walk.result(input));
  return all;
} catch (const std::bad_alloc&) {
  out_of_own_memory("differentiable_grad");
}

const Variable& Recorded::unchanged(const Variable& v) const {
  if (!v.defined()) return v;
  BS_CHECK(v.has_data(),
           "differentiable_grad: a tensor {} {} that the backward of {} looks at is gone: a rule "
           "saves the inputs and results that its `again` asks for",
           v.dtype(), v.shape(), detail::RunningBackward::name());
  if (change_count() == moment_) return v;
  const char* by = changed_since(v.data(), moment_);
  BS_CHECK(!by,
           "differentiable_grad: {} has changed a tensor {} {} in place since it was used; take "
           "the gradient before the change, or change a clone",
           by, v.dtype(), v.shape());
  return v;
}

}  // namespace bs
