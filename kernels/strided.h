#pragma once
/** @file Walking several tensors of one shape together, whatever their strides. */
#include <bs/lib/dims.h>

#include <array>
#include <cstdint>

namespace bs {

/** @brief A shape with the strides of N tensors over it, brought to the fewest axes. Axes that
 *  every tensor steps through evenly are merged, so a dense operation has one axis. The last is
 *  innermost. A plain struct: passed by value to device code. */
template <int N>
struct StridedLoop {
  int rank = 0;
  int64_t shape[Dims::max_rank] = {};
  int64_t strides[N][Dims::max_rank] = {};

  StridedLoop() = default;
  StridedLoop(const Shape& full, const std::array<Strides, N>& each) {
    for (int axis = 0; axis < full.rank(); ++axis) {
      if (full[axis] == 1) continue;
      if (rank > 0 && mergeable(full[axis], each, axis)) {
        shape[rank - 1] *= full[axis];
      } else {
        shape[rank++] = full[axis];
      }
      for (int n = 0; n < N; ++n) strides[n][rank - 1] = each[static_cast<size_t>(n)][axis];
    }
    if (rank == 0) {
      rank = 1;
      shape[0] = 1;
    }
  }

  constexpr int64_t numel() const {
    int64_t n = 1;
    for (int axis = 0; axis < rank; ++axis) n *= shape[axis];
    return n;
  }
  /** @brief How far tensor `n` has stepped at element `index` of the loop, in row-major order. */
  constexpr int64_t offset(int n, int64_t index) const {
    int64_t at = 0;
    for (int axis = rank - 1; axis >= 0; --axis) {
      at += index % shape[axis] * strides[n][axis];
      index /= shape[axis];
    }
    return at;
  }
  int64_t inner() const { return shape[rank - 1]; }
  int64_t inner_stride(int n) const { return strides[n][rank - 1]; }

 private:
  bool mergeable(int64_t extent, const std::array<Strides, N>& each, int axis) const {
    for (int n = 0; n < N; ++n)
      if (strides[n][rank - 1] != each[static_cast<size_t>(n)][axis] * extent) return false;
    return true;
  }
};

}  // namespace bs
