#pragma once
/** @file What the tape remembers of an operation. Private to the engine. */
#include <bs/autograd/tape.h>
#include <bs/autograd/variable_state.h>

#include <algorithm>
#include <memory>

namespace bs {

namespace detail {

using PlacePointer = std::shared_ptr<GraphPlace>;

/// Throws unless `gradient`, which the backward of `name` gave, is like the variable's values.
void check_gradient(const char* name, const Tensor& gradient, const WeakTensor& values);

/// The gradients for `inputs` of a graph that the backward which is running has made, from `dy`.
/// Those of all other leaves go where that backward's own would go, so grad() changes no variable.
Grads inner_gradients(const Variable& from, std::span<const Variable> inputs, const Tensor& dy);

}  // namespace detail

/// One operation. It keeps the places of its inputs, and those of its outputs only as long as
/// somebody else does. The values are kept by the backward, as far as that needs them.
struct Tape::Node {
  const char* name;
  std::vector<detail::PlacePointer> inputs;  ///< null where no gradient is wanted
  std::vector<std::weak_ptr<detail::GraphPlace>> outputs;
  GradientOrder order;
  Backward one;  ///< of an operation of one result; else `many` is set
  BackwardMany many;
  Again again = nullptr;  ///< where the backward is recorded too
  uint64_t moment = 0;    ///< when the operation ran

  bool reachable() const {
    return std::any_of(outputs.begin(), outputs.end(), [](const auto& o) { return !o.expired(); });
  }
};

}  // namespace bs
