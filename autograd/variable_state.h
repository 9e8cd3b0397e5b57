#pragma once
/** @file What a Variable is a handle to. Private to the engine. */
#include <bs/autograd/variable.h>

#include <cstdint>

namespace bs::detail {

struct VariableState {
  Tensor data;
  Tensor grad;  ///< of a leaf: the sum so far; of a result: pending in a backward
  bool requires_grad = false;
  bool retain_grad = false;
  bool owns_grad = false;  ///< whether `grad` may be added to in place
  uint64_t node = 0;       ///< the operation that made this; 0 for a leaf
  std::vector<std::function<Tensor(const Tensor&)>> hooks;
};

/** @brief Adds `gradient` to the state's own, in place once it owns its sum. */
void add_gradient(VariableState& state, Tensor gradient);
/** @brief Lets the hooks see, and replace, the whole gradient. */
void run_hooks(VariableState& state);

}  // namespace bs::detail
