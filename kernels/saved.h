#pragma once
/** @file What a forward leaves for its backward, checked where it comes back. */
#include <bs/lib/tensor.h>

namespace bs {

/** @brief Whether `t` is such a tensor as a forward makes: contiguous, of this shape, dtype and
 *  device. Another call's result, or one that was put together by hand, may be none. */
inline bool is_saved(const Tensor& t, const Shape& shape, DType dtype, Device device) {
  return t.defined() && t.shape() == shape && t.dtype() == dtype && t.device() == device &&
         t.is_contiguous();
}

}  // namespace bs
