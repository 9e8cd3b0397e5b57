#pragma once
/** @file What a Variable is a handle to. Private to the engine. */
#include <bs/autograd/variable.h>

#include <cstdint>
#include <mutex>

namespace bs::detail {

struct VariableState {
  Tensor data;
  Tensor grad;  ///< summed over backwards; kept for leaves, and where retain_grad asked for it
  std::mutex summing;  ///< held while a backward adds to grad: threads may share a leaf
  bool requires_grad = false;
  bool retain_grad = false;
  uint64_t node = 0;  ///< number of the operation that made this; 0 for a leaf
  std::vector<std::function<Tensor(const Tensor&)>> hooks;
};

}  // namespace bs::detail
