#pragma once
/** @file The tape: the list of operations done, walked backwards for gradients. */
#include <bs/autograd/variable.h>

#include <cstdint>
#include <initializer_list>
#include <map>
#include <span>

namespace bs {

/** @brief Gradients in the order of a function's inputs (or outputs); undefined stands for zero. */
using Grads = std::vector<Tensor>;

/** @brief In which order of axes a backward takes the gradient of its output. */
enum class GradientOrder : uint8_t {
  row_major,  ///< contiguous
  any         ///< dense in any order, such as channels-last: no copy to bring it into another
};

/** @brief A thread's list of differentiable operations, in the order they were done.
 *
 *  That order is a topological one, so backward is one walk from the newest to the oldest: no sort,
 *  no recursion, always the same order of additions. What an operation saved is freed as the walk
 *  passes it, and operations whose results nobody holds any more are dropped as others arrive. */
class Tape {
 public:
  /** @brief One output's gradient in (contiguous but for GradientOrder::any), the inputs' gradients
   * out (any strides). */
  using Backward = std::function<Grads(const Tensor& dy)>;
  /** @brief The same for several outputs; those without a gradient come undefined. */
  using BackwardMany = std::function<Grads(const Grads& dys)>;

  /** @brief The tape of the calling thread. */
  static Tape& current();

  /** @brief Remembers that `y` was computed from `inputs`, and how to go back: this is how every
   *  function of the library, and any of yours, becomes differentiable. The lambda's captures are
   *  what is saved for backward.
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
  /** @brief The same for a function of several results. An undefined one stays undefined; one whose
   *  dtype is not floating requires no gradient. */
  std::vector<Variable> record_many(const char* name, std::span<const Variable> inputs,
                                    std::vector<Tensor> outputs, BackwardMany backward,
                                    GradientOrder order = GradientOrder::row_major);

  /** @brief See Variable::backward. May be called from within a backward. */
  void backward(const Variable& from, const Tensor& gradient, BackwardOptions options);
  /** @brief See grad(). */
  Grads gradients(std::span<const Variable> from, std::span<const Variable> inputs,
                  std::span<const Tensor> gradients, BackwardOptions options);

  /** @brief Operations remembered at present. */
  size_t size() const { return nodes_.size(); }
  /** @brief Forgets everything recorded. */
  void clear() { nodes_.clear(); }

 private:
  struct Node;
  struct Walk;
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
