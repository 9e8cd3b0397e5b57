#pragma once
// Where the indices of gather, scatter and their kin point.
#include <bs/kernels/cuda/integers.cuh>

namespace bs::cuda {

/// An index [outer, m, inner] of any strides beside an axis of n.
struct Places {
  Integers index;
  int64_t outer_stride, stride, inner_stride;
  int64_t n, m, inner;

  /// The place in [outer, n, inner] that element e of [outer, m, inner] names; -1: outside.
  __device__ int64_t operator()(int64_t e) const {
    const int64_t i = e % inner, r = e / inner, k = r % m, o = r / m;
    const int64_t at = index[o * outer_stride + k * stride + i * inner_stride];
    return at >= 0 && at < n ? (o * n + at) * inner + i : -1;
  }
};

inline Places places(const Tensor& index, int64_t n) {
  const Strides& s = index.strides();
  return {integers(index), s[0], s[1], s[2], n, index.size(1), index.size(2)};
}

}  // namespace bs::cuda
