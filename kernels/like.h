#pragma once
/** @file New tensors of the shape, dtype and device of another. */
#include <bs/kernels/fill.h>
#include <bs/kernels/random.h>

namespace bs {

inline Tensor ones_like(const Tensor& x) { return ones(x.shape(), x.dtype(), x.device()); }
inline Tensor full_like(const Tensor& x, double value) {
  return full(x.shape(), value, x.dtype(), x.device());
}
inline Tensor rand_like(const Tensor& x, Generator& generator = default_generator()) {
  return rand(x.shape(), x.dtype(), x.device(), generator);
}
inline Tensor randn_like(const Tensor& x, Generator& generator = default_generator()) {
  return randn(x.shape(), x.dtype(), x.device(), generator);
}

}  // namespace bs
