#pragma once
/** @file What a Variable is a handle to, and what the tape keeps of it. Private to the engine. */
#include <bs/autograd/variable.h>
#include <bs/lib/weak_tensor.h>

#include <cstdint>
#include <mutex>

namespace bs::detail {

struct VariableState;

/// Where a variable stands in the graph. The tape holds it without the variable's values: those are
/// freed with the last handle, unless an operation has saved them for backward.
struct GraphPlace {
  WeakTensor values;
  std::weak_ptr<VariableState> variable;
  Tensor grad;  ///< summed over backwards; kept for leaves, and where retain_grad asked for it
  std::mutex summing;  ///< held while a backward adds to grad: threads may share a leaf
  bool requires_grad = false;
  bool retain_grad = false;
  uint64_t node = 0;  ///< number of the operation that made this; 0 for a leaf
  std::vector<std::function<Tensor(const Tensor&)>> hooks;
};

struct VariableState {
  Tensor data;  ///< undefined where the tape looks for values that nothing has saved
  std::shared_ptr<GraphPlace> place = nullptr;  ///< once it was asked for
};

}  // namespace bs::detail
