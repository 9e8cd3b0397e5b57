#include <bs/autograd/tape.h>

#include <bs/autograd/anomaly.h>
#include <bs/autograd/saved_tensor.h>
#include <bs/autograd/tape_node.h>
#include <bs/kernels/accumulate.h>
#include <bs/kernels/copy.h>
#include <bs/lib/changes.h>
#include <bs/lib/out_of_memory.h>
#include <bs/lib/trace.h>

#include <algorithm>
#include <atomic>
#include <new>
#include <unordered_map>
#include <utility>

namespace bs {

using detail::check_gradient;
using detail::GraphPlace;
using detail::PlacePointer;

Tape& Tape::current() {
  thread_local Tape tape;
  return tape;
}

namespace {

bool wanted(std::span<const Variable> inputs) {
  return grad_enabled() && std::any_of(inputs.begin(), inputs.end(),
                                       [](const Variable& v) { return v.requires_grad(); });
}

/// Whether the next walk is one within a backward, see inner_gradients().
thread_local bool next_is_inner = false;

/// Numbers are unique over all threads, so a variable of another tape is never taken for ours.
std::atomic<uint64_t> last_of_all = 0;

}  // namespace

uint64_t Tape::last_number() { return last_of_all; }

Variable Tape::record(const char* name, std::initializer_list<Variable> inputs, Tensor y,
                      Backward backward, GradientOrder order) {
  return record(name, std::span(inputs.begin(), inputs.size()), std::move(y), std::move(backward),
                order);
}

Tape::Node& Tape::append(const char* name, std::span<const Variable> inputs,
                         std::span<const Variable> results, GradientOrder order) {
  drop_unreachable();
  const uint64_t number = ++last_of_all;
  const auto at = nodes_.emplace_hint(nodes_.end(), number, std::make_shared<Node>());
  Node& node = *at->second;
  node.name = name;
  node.order = order;
  node.moment = change_count();
  node.inputs.reserve(inputs.size());
  for (const Variable& v : inputs)
    node.inputs.push_back(v.requires_grad() ? v.state_->place : nullptr);
  node.outputs.reserve(results.size());
  for (const Variable& v : results) {
    node.outputs.emplace_back();
    if (!v.defined() || !is_floating(v.dtype())) continue;
    v.place().requires_grad = true;
    v.place().node = number;
    node.outputs.back() = v.state_->place;
  }
  return node;
}

Variable Tape::record(const char* name, std::span<const Variable> inputs, Tensor y,
                      Backward backward, GradientOrder order) {
  return record(name, inputs, std::move(y), std::move(backward), order, nullptr);
}

Variable Tape::record(const char* name, std::span<const Variable> inputs, Tensor y,
                      Backward backward, GradientOrder order, Again again) {
  BS_CHECK(backward, "{}: recorded without a backward", name);
  if (detecting_anomaly()) detail::check_results(name, inputs, {&y, 1});
  Variable result(std::move(y));
  if (!wanted(inputs)) return result;
  Node& node = append(name, inputs, {&result, 1}, order);
  node.one = std::move(backward);
  node.again = again;
  return result;
}

std::vector<Variable> Tape::record_many(const char* name, std::span<const Variable> inputs,
                                        std::vector<Tensor> outputs, BackwardMany backward,
                                        GradientOrder order) {
  return record_many(name, inputs, std::move(outputs), std::move(backward), order, nullptr);
}

std::vector<Variable> Tape::record_many(const char* name, std::span<const Variable> inputs,
                                        std::vector<Tensor> outputs, BackwardMany backward,
                                        GradientOrder order, Again again) {
  BS_CHECK(backward, "{}: recorded without a backward", name);
  if (detecting_anomaly()) detail::check_results(name, inputs, outputs);
  std::vector<Variable> results(std::make_move_iterator(outputs.begin()),
                                std::make_move_iterator(outputs.end()));
  if (!wanted(inputs)) return results;
  Node& node = append(name, inputs, results, order);
  node.many = std::move(backward);
  node.again = again;
  return results;
}

void Tape::drop_unreachable() {
  // Always from the end: dropping a node releases its inputs, which may make earlier ones
  // unreachable. So an abandoned forward goes as a whole when the next one begins.
  while (!nodes_.empty() && !nodes_.rbegin()->second->reachable())
    nodes_.erase(std::prev(nodes_.end()));
  if (nodes_.size() < sweep_at_) return;
  for (auto at = nodes_.end(); at != nodes_.begin();)
    if (!(--at)->second->reachable()) at = nodes_.erase(at);
  sweep_at_ = std::max<size_t>(1024, 2 * nodes_.size());
}

namespace {

/// `x` itself where it is dense and nobody else can see its memory, else a copy.
Tensor owned(Tensor x) {
  if (x.use_count() > 1 || !x.is_contiguous()) x = clone(x);
  return x;
}

/// The axes from the one with the largest strides to that with the smallest.
Dims memory_order(const Tensor& x) {
  Dims axes;
  for (int axis = 0; axis < x.rank(); ++axis) axes.push_back(axis);
  std::stable_sort(axes.begin(), axes.end(), [&](int64_t a, int64_t b) {
    return x.strides()[static_cast<int>(a)] > x.strides()[static_cast<int>(b)];
  });
  return axes;
}

bool is_dense(const Tensor& x) {
  return x.is_contiguous() || x.permute(memory_order(x)).is_contiguous();
}

/// Gradients that are dense in one order, such as channels-last, are added in it.
void add(Tensor& total, Tensor part) {
  if (!total.defined()) {
    total = std::move(part);
    return;
  }
  if (!total.is_contiguous()) {
    const Dims order = memory_order(total);
    const Tensor other = part.permute(order);
    if (other.is_contiguous() && total.permute(order).is_contiguous()) {
      Tensor sum = total.permute(order);
      total = {};  // so that the sum has one owner, and is added to in place
      sum = owned(std::move(sum));
      accumulate(sum, other);
      Dims back = order;
      for (int i = 0; i < order.rank(); ++i) back[static_cast<int>(order[i])] = i;
      total = sum.permute(back);
      return;
    }
  }
  total = owned(std::move(total));
  accumulate(total, contiguous(part));
}

}  // namespace

void detail::check_gradient(const char* name, const Tensor& gradient, const WeakTensor& values) {
  BS_CHECK(gradient.shape() == values.shape() && gradient.dtype() == values.dtype() &&
               gradient.device() == values.device(),
           "backward: {} gave a gradient {} {} on {} for a variable {} {} on {}", name,
           gradient.dtype(), gradient.shape(), gradient.device(), values.dtype(), values.shape(),
           values.device());
}

/// One backward: the operations between its start and the leaves, newest first, and the gradients
/// being summed. Everything pending is in here, so an exception leaves nothing behind.
struct Tape::Walk {
  struct Sum {
    Tensor total;
    PlacePointer of;
    int missing = 0;  ///< contributions still to come
  };
  std::map<uint64_t, std::shared_ptr<Node>, std::greater<>> nodes;
  std::unordered_map<GraphPlace*, Sum> sums;
  /// The gradients asked for; with them, no variable's own changes.
  std::unordered_map<GraphPlace*, Tensor>* results = nullptr;
  Walk* around = nullptr;               ///< whose backward runs this one as a part of its own
  static thread_local Walk* innermost;  ///< of those that this thread is in

  /// Looks the whole way over before the first step: an operation that is gone is found in time.
  Walk(const Tape& tape, std::span<const Variable> starts) {
    for (const Variable& start : starts) expect(start.state_->place);
    for (auto& [number, node] : nodes) {  // grows behind us: inputs are older than their node
      const auto found = tape.nodes_.find(number);
      BS_CHECK(found != tape.nodes_.end(),
               "backward: the graph of this variable is gone: an earlier backward has freed it, or "
               "it was recorded by another thread; pass retain_graph to run backward twice");
      node = found->second;
      for (const PlacePointer& input : node->inputs)
        if (input) expect(input);
    }
  }

  void expect(const PlacePointer& state) {
    Sum& sum = sums[state.get()];
    sum.of = state;
    ++sum.missing;
    if (state->node != 0) nodes[state->node];
  }

  void deliver(const char* name, GraphPlace& to, Tensor gradient) {
    Sum& sum = sums.at(&to);
    if (gradient.defined()) {
      check_gradient(name, gradient, to.values);
      add(sum.total, std::move(gradient));
    }
    if (--sum.missing > 0 || !sum.total.defined()) return;
    for (size_t i = 0, count = to.hooks.size(); i < count; ++i) {
      const auto hook = to.hooks[i];  // a copy: it may register another, which moves the list
      Tensor replaced = hook(sum.total);
      if (!replaced.defined()) continue;
      check_gradient("a hook", replaced, to.values);
      sum.total = std::move(replaced);
    }
    Tensor* const result = asked(to);
    if (!result && (keeps_no_other() || (to.node != 0 && !to.retain_grad))) {
      if (to.node == 0) sum.total = {};
      return;
    }
    Tensor whole = to.node == 0 ? std::exchange(sum.total, {}) : sum.total;
    if (result) return add(*result, std::move(whole));
    const std::lock_guard lock(to.summing);
    if (to.grad.defined()) {
      add(to.grad, std::move(whole));
    } else {
      to.grad = owned(std::move(whole));
    }
  }

  /// The sum of a gradient that this walk or one around it was asked for; null for others.
  Tensor* asked(GraphPlace& to) const {
    for (const Walk* walk = this; walk; walk = walk->around) {
      if (!walk->results) continue;
      const auto found = walk->results->find(&to);
      if (found != walk->results->end()) return &found->second;
    }
    return nullptr;
  }

  /// Whether gradients that were not asked for are dropped.
  bool keeps_no_other() const {
    const Walk* outermost = this;
    while (outermost->around) outermost = outermost->around;
    return outermost->results != nullptr;
  }

  Tensor take(const PlacePointer& output, GradientOrder order) {
    const auto found = sums.find(output.get());
    if (found == sums.end()) return {};
    Tensor total = std::move(found->second.total);
    sums.erase(found);
    if (!total.defined() || (order == GradientOrder::any && is_dense(total))) return total;
    return contiguous(total);
  }

  void run(const Node& node) {
    Grads dys;
    for (const auto& output : node.outputs) dys.push_back(take(output.lock(), node.order));
    const bool any =
        std::any_of(dys.begin(), dys.end(), [](const Tensor& dy) { return dy.defined(); });
    const detail::RunningBackward running(node.name);
    Grads gradients = !any       ? Grads(node.inputs.size())
                      : node.one ? node.one(dys.front())
                                 : node.many(dys);
    if (detecting_anomaly()) detail::check_gradients(node.name, dys, gradients);
    BS_CHECK(gradients.size() == node.inputs.size(), "backward: {} gave {} gradients for {} inputs",
             node.name, gradients.size(), node.inputs.size());
    dys.clear();  // a gradient that is dy itself may now have one owner, and be added to in place
    for (size_t i = 0; i < gradients.size(); ++i)
      if (node.inputs[i]) deliver(node.name, *node.inputs[i], std::move(gradients[i]));
  }
};

thread_local Tape::Walk* Tape::Walk::innermost = nullptr;

void Tape::backward(const Variable& from, const Tensor& gradient, BackwardOptions options) try {
  BS_CHECK(from.requires_grad(), "backward: this variable requires no gradient");
  BS_CHECK(gradient.defined(), "backward: the gradient to start from is undefined");
  Walk walk(*this, {&from, 1});
  walk_back(walk, {&from, 1}, {&gradient, 1}, options);
} catch (const std::bad_alloc&) {
  out_of_own_memory("backward");
}

Grads Tape::gradients(std::span<const Variable> from, std::span<const Variable> inputs,
                      std::span<const Tensor> gradients, BackwardOptions options) {
  const bool inner = std::exchange(next_is_inner, false);
  for (const Variable& output : from)
    BS_CHECK(output.requires_grad(), "grad: output {} requires no gradient", &output - from.data());
  std::unordered_map<GraphPlace*, Tensor> results;
  for (const Variable& input : inputs) {
    BS_CHECK(input.requires_grad(), "grad: input {} requires no gradient", &input - inputs.data());
    results[input.state_->place.get()];
  }
  Walk walk(*this, from);
  walk.results = &results;
  if (inner) walk.around = Walk::innermost;
  walk_back(walk, from, gradients, options);
  walk.sums.clear();
  Grads all;
  for (const Variable& input : inputs) {
    // Another input's, the caller's or this variable's own gradient may share its memory. A walk
    // around minds that itself.
    const Tensor& found = results.at(input.state_->place.get());
    all.push_back(found.defined() && !inner ? clone(found) : found);
  }
  return all;
}

Grads detail::inner_gradients(const Variable& from, std::span<const Variable> inputs,
                              const Tensor& dy) {
  next_is_inner = true;
  return tape().gradients({&from, 1}, inputs, {&dy, 1}, {});
}

void Tape::walk_back(Walk& walk, std::span<const Variable> from, std::span<const Tensor> gradients,
                     BackwardOptions options) {
  const TraceRange range("backward");
  const NoGrad no_grad;
  struct Running {
    Walk* const before;
    explicit Running(Walk& walk) : before(std::exchange(Walk::innermost, &walk)) {}
    ~Running() { Walk::innermost = before; }
  } const running(walk);
  for (size_t i = 0; i < from.size(); ++i)
    walk.deliver("the caller", *from[i].state_->place, gradients[i]);
  while (!walk.nodes.empty()) {
    const auto step = walk.nodes.extract(walk.nodes.begin());
    if (!options.retain_graph) nodes_.erase(step.key());
    walk.run(*step.mapped());
  }
}

}  // namespace bs
