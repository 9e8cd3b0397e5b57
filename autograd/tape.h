#pragma once
/** @file The tape: the list of operations done, walked backwards for gradients. */
#include <bs/autograd/variable.h>

#include <concepts>
#include <cstdint>
#include <initializer_list>
#include <map>
#include <span>

namespace bs {

/** @brief Gradients in the order of a function's inputs (or outputs); undefined stands for zero. */
using Grads = std::vector<Tensor>;

/** @brief The same as variables, of a backward that is recorded. */
using VariableGrads = std::vector<Variable>;

/** @brief What a backward that is recorded is given: an operation with its inputs and results.
 * These stand in for what the backward on tensors has saved.
 *  @throws Error where one that is asked for was changed in place since the operation ran, or is
 *  gone. The tape keeps no values but those that rules save. */
class Recorded {
 public:
  Recorded(std::span<const Variable> dys, std::span<const Variable> inputs,
           std::span<const Variable> outputs, uint64_t moment)
      : dys_(dys), inputs_(inputs), outputs_(outputs), moment_(moment) {}

  /** @brief The gradient of a result; undefined stands for zero, but not of an only result. */
  const Variable& dy(size_t output = 0) const { return dys_[output]; }
  std::span<const Variable> dys() const { return dys_; }
  size_t inputs() const { return inputs_.size(); }
  /** @brief Whether a gradient for the input is wanted. */
  bool wants(size_t input) const { return inputs_[input].defined(); }
  /** @brief The input; undefined where no gradient for it is wanted. */
  const Variable& input(size_t input = 0) const { return unchanged(inputs_[input]); }
  /** @brief The input; what was saved of it where no gradient for it is wanted. */
  Variable input(size_t input, const Tensor& saved) const {
    return wants(input) ? this->input(input) : Variable(saved);
  }
  /** @brief The same; where nothing has saved it, without values: see
   *  Variable::has_data. */
  const Variable& input_if_saved(size_t input) const {
    return inputs_[input].has_data() ? this->input(input) : inputs_[input];
  }
  const Variable& y(size_t output = 0) const { return unchanged(outputs_[output]); }

 private:
  const Variable& unchanged(const Variable& v) const;
  std::span<const Variable> dys_, inputs_, outputs_;
  uint64_t moment_;
};

/** @brief A backward on tensors that is recorded too. */
template <class Rule>
concept RecordedRule = requires(const Rule& rule, const Recorded& r) {
  { rule.again(r) } -> std::same_as<VariableGrads>;
};

/** @brief In which order of axes a backward takes the gradient of its output. */
enum class GradientOrder : uint8_t {
  row_major,  ///< contiguous
  any         ///< dense in any order, such as channels-last: no copy to bring it into another
};

/** @brief A thread's list of differentiable operations, in the order they were done.
 *
 *  That order is a topological one, so backward is one walk from the newest to the oldest. It needs
 *  no sort or recursion, and always adds in one order. What an operation saved is freed as the walk
 *  passes it. Operations whose results nobody holds any more are dropped as others arrive. */
class Tape {
 public:
  /** @brief One output's gradient in (contiguous but for GradientOrder::any), the inputs' gradients
   * out (any strides). */
  using Backward = std::function<Grads(const Tensor& dy)>;
  /** @brief The same for several outputs; those without a gradient come undefined. */
  using BackwardMany = std::function<Grads(const Grads& dys)>;

  /** @brief The tape of the calling thread. */
  static Tape& current();

  /** @brief Remembers that `y` was computed from `inputs`, and how to go back. This is how every
   *  function of the library, and any of yours, becomes differentiable. The lambda's captures are
   *  what is saved for backward. `name` is not copied: it must outlive the graph, as literals do.
   *  @code
   *  return tape().record("softmax", {x}, y, [y](const Tensor& dy) {
   *    return Grads{softmax_backward(y, dy)};
   *  });
   *  @endcode
   *  Nothing is kept when recording is off or no input requires a gradient. */
  Variable record(const char* name, std::initializer_list<Variable> inputs, Tensor y,
                  Backward backward, GradientOrder order = GradientOrder::row_major);
  Variable record(const char* name, std::span<const Variable> inputs, Tensor y, Backward backward,
                  GradientOrder order = GradientOrder::row_major);
  /** @brief The same with a backward that has derivatives itself; see autograd/recorded.h. */
  template <RecordedRule Rule>
  Variable record(const char* name, std::initializer_list<Variable> inputs, Tensor y, Rule rule,
                  GradientOrder order = GradientOrder::row_major) {
    return record(name, std::span(inputs.begin(), inputs.size()), std::move(y), std::move(rule),
                  order);
  }
  template <RecordedRule Rule>
  Variable record(const char* name, std::span<const Variable> inputs, Tensor y, Rule rule,
                  GradientOrder order = GradientOrder::row_major) {
    return record(name, inputs, std::move(y), Backward(std::move(rule)), order,
                  [](const Backward& one, const BackwardMany&, const Recorded& r) {
                    return one.target<Rule>()->again(r);
                  });
  }
  /** @brief The same for a function of several results. An undefined one stays undefined; one whose
   *  dtype is not floating requires no gradient. */
  std::vector<Variable> record_many(const char* name, std::span<const Variable> inputs,
                                    std::vector<Tensor> outputs, BackwardMany backward,
                                    GradientOrder order = GradientOrder::row_major);
  template <RecordedRule Rule>
  std::vector<Variable> record_many(const char* name, std::span<const Variable> inputs,
                                    std::vector<Tensor> outputs, Rule rule,
                                    GradientOrder order = GradientOrder::row_major) {
    return record_many(name, inputs, std::move(outputs), BackwardMany(std::move(rule)), order,
                       [](const Backward&, const BackwardMany& many, const Recorded& r) {
                         return many.target<Rule>()->again(r);
                       });
  }

  /** @brief See Variable::backward. May be called from within a backward. */
  void backward(const Variable& from, const Tensor& gradient, BackwardOptions options);
  /** @brief See grad(). */
  Grads gradients(std::span<const Variable> from, std::span<const Variable> inputs,
                  std::span<const Tensor> gradients, BackwardOptions options);
  /** @brief See differentiable_grad(). Operations up to the number `since` are taken for leaves. */
  VariableGrads recorded_gradients(std::span<const Variable> from, std::span<const Variable> inputs,
                                   std::span<const Variable> gradients, uint64_t since = 0);
  /** @brief The number of the newest operation that was remembered, on any tape. */
  static uint64_t last_number();

  /** @brief Operations remembered at present. */
  size_t size() const { return nodes_.size(); }
  /** @brief Forgets everything recorded. */
  void clear() { nodes_.clear(); }

 private:
  struct Node;
  struct Walk;
  class RecordedWalk;
  /// The rule of an operation whose backward is recorded, from the one that it keeps.
  using Again = VariableGrads (*)(const Backward&, const BackwardMany&, const Recorded&);
  Variable record(const char* name, std::span<const Variable> inputs, Tensor y, Backward backward,
                  GradientOrder order, Again again);
  std::vector<Variable> record_many(const char* name, std::span<const Variable> inputs,
                                    std::vector<Tensor> outputs, BackwardMany backward,
                                    GradientOrder order, Again again);
  void drop_unreachable();
  void walk_back(Walk& walk, std::span<const Variable> from, std::span<const Tensor> gradients,
                 BackwardOptions options);
  /// Remembers an operation, but for its way back.
  Node& append(const char* name, std::span<const Variable> inputs,
               std::span<const Variable> results, GradientOrder order);

  std::map<uint64_t, std::shared_ptr<Node>> nodes_;  ///< by number, which grows with time
  size_t sweep_at_ = 1024;
};

/** @brief The calling thread's tape. */
inline Tape& tape() { return Tape::current(); }

}  // namespace bs
