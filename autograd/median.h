#pragma once
/** @file The element in the middle of each row. */
#include <bs/autograd/sort.h>

namespace bs {

/** @brief The lower median of each row along `axis`: the k-th smallest, k = (n + 1) / 2, and the
 *  position from which sort takes it. NaN if there is one, at its first position. The gradient goes
 *  to that element.
 *  @throws Error over nothing. */
IndexedVariable median(const Variable& x, int axis, bool keepdim = false);
inline Indexed median(const Tensor& x, int axis, bool keepdim = false) {
  const IndexedVariable y = median(Variable(x), axis, keepdim);
  return {y.values.data(), y.indices};
}

}  // namespace bs
