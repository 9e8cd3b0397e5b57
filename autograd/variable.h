#pragma once
/** @file A tensor that the tape can follow. */
#include <bs/lib/placed.h>
#include <bs/lib/tensor.h>

#include <functional>
#include <memory>
#include <vector>

namespace bs {

namespace detail {
struct GraphPlace;
struct VariableState;
}  // namespace detail

/** @brief Options of backward(). */
struct BackwardOptions {
  /** @brief Keep what the tape saved, so that backward can run again over the same graph. */
  bool retain_graph = false;
};

/** @brief A tensor with a place for its gradient. Copies name the same variable. A Tensor becomes a
 *  Variable by itself; a Variable becomes a Tensor only through data(). */
class Variable : public Placed {
 public:
  /** @brief Undefined: stands for an absent optional input. */
  Variable() = default;
  Variable(Tensor data);  // NOLINT(google-explicit-constructor): the implicit direction is wanted
  /** @brief A leaf. @throws Error when a gradient is wanted for a dtype that is not floating. */
  Variable(Tensor data, bool requires_grad);
  Variable(const Variable&) = default;
  Variable(Variable&&) = default;
  /** @brief Names the variable that `other` names from now on. As for a Tensor, `x[i] = v` does not
   *  compile. */
  Variable& operator=(const Variable& other) & = default;
  Variable& operator=(Variable&& other) & = default;
  ~Variable() = default;

  bool defined() const { return state_ != nullptr; }
  /** @brief Whether both are handles to one variable. */
  bool is_same(const Variable& other) const { return state_ == other.state_; }
  /** @brief Number of handles to this variable. */
  int64_t use_count() const { return state_.use_count(); }
  /** @name Of the values
   *  The name of the function that asks comes by itself.
   *  @throws Error in its name for an undefined variable: `softmax: a Variable is undefined`.
   *  @{ */
  const Tensor& data(const char* caller = __builtin_FUNCTION()) const;
  const Shape& shape(const char* caller = __builtin_FUNCTION()) const;
  int64_t size(int axis, const char* caller = __builtin_FUNCTION()) const {
    return shape(caller)[axis];
  }
  int rank(const char* caller = __builtin_FUNCTION()) const { return shape(caller).rank(); }
  int64_t numel(const char* caller = __builtin_FUNCTION()) const { return shape(caller).product(); }
  DType dtype(const char* caller = __builtin_FUNCTION()) const;
  Device device(const char* caller = __builtin_FUNCTION()) const;
  /** @brief Whether the values are there. Only a recorded backward meets a defined variable without
   *  any: an input that no operation has saved, see Recorded. Its data() throws.
   */
  bool has_data() const;
  /** @} */

  /** @brief The value of a variable of one element. Waits for the device. */
  double item() const { return data().item(); }
  /** @name Parts and copies
   *  Differentiable; see autograd/view.h and autograd/copy.h.
   *  @{ */
  Variable operator[](int64_t index) const;
  Variable reshape(const Shape& shape) const;
  Variable clone() const;
  /** @} */

  /** @brief Whether backward brings a gradient here; false for undefined. */
  bool requires_grad() const;
  /** @brief Whether this is no result of a recorded operation. */
  bool is_leaf() const;
  /** @brief The gradient summed by backward; an undefined Tensor before that. Contiguous, and its
   *  memory is nobody else's: changing it in place changes no other gradient. */
  const Tensor& grad() const;
  void set_grad(Tensor gradient) const;  ///< undefined, or of the values' shape, dtype, device
  void zero_grad() const { set_grad({}); }
  /** @brief Replaces a leaf's values: by floating ones, where it requires a gradient. */
  void set_data(Tensor data) const;
  void set_requires_grad(bool wanted) const;
  /** @brief Keeps the gradient of a result too, which backward otherwise drops. */
  void retain_grad() const;
  /** @brief In each backward `hook` sees the gradient once it is whole, before it joins grad().
   *  It may return another (undefined keeps it), which the next sees, in order of registration. It
   *  must not hold a handle to its own variable, which would keep both for ever. Null throws. */
  void register_hook(std::function<Tensor(const Tensor&)> hook) const;

  /** @brief The same values, unknown to the tape. */
  Variable detach() const { return Variable(data()); }
  /** @brief Gradients of this one-element variable for all leaves it was computed from.
   *  Several threads may run backward at once, each over its own graph, onto leaves they share.
   *  Their gradients are then added in no fixed order.
   *  @throws Error when it has more elements, needs no gradient, or its graph was freed, in whole
   * or in part; nothing has changed then. */
  void backward(BackwardOptions options = {}) const;
  /** @brief The same, starting from `gradient`, defined and of this variable's shape and dtype. */
  void backward(const Tensor& gradient, BackwardOptions options = {}) const;

 private:
  friend class Tape;
  detail::VariableState& state(const char* caller = __builtin_FUNCTION()) const;
  /// Its place in the graph, which is made here when it has none yet.
  detail::GraphPlace& place(const char* caller = __builtin_FUNCTION()) const;
  std::shared_ptr<detail::VariableState> state_;
};

/** @brief Like a Tensor's, and whether it requires a gradient. */
/** @brief The variable's tensor; an undefined one of an undefined variable. */
Tensor data_of(const Variable& variable);

std::string to_string(const Variable& variable);
std::ostream& operator<<(std::ostream& out, const Variable& variable);

/** @brief While it lives, this thread's operations are not recorded. */
class NoGrad {
 public:
  NoGrad();
  ~NoGrad();
  NoGrad(const NoGrad&) = delete;
  NoGrad& operator=(const NoGrad&) = delete;

 private:
  bool previous_;
};
/** @brief While it lives, this thread's operations are recorded: for a forward inside a backward.
 */
class EnableGrad {
 public:
  EnableGrad();
  ~EnableGrad();
  EnableGrad(const EnableGrad&) = delete;
  EnableGrad& operator=(const EnableGrad&) = delete;

 private:
  bool previous_;
};
/** @brief Whether operations of this thread are being recorded. */
bool grad_enabled();

}  // namespace bs
