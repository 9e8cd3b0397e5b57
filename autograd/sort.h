#pragma once
/** @file Differentiable order; see kernels/sort.h. They save positions. */
#include <bs/autograd/variable.h>
#include <bs/kernels/sort.h>

namespace bs {

/** @brief Indexed, as a variable. */
struct IndexedVariable {
  Variable values;
  Tensor indices;
};

IndexedVariable sort(const Variable& x, int axis = -1, bool descending = false);
IndexedVariable topk(const Variable& x, int64_t k, int axis = -1, bool largest = true);
IndexedVariable kthvalue(const Variable& x, int64_t k, int axis = -1, bool keepdim = false);
IndexedVariable max(const Variable& x, int axis, bool keepdim = false);
IndexedVariable min(const Variable& x, int axis, bool keepdim = false);

}  // namespace bs
