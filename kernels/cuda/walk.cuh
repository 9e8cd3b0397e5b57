#pragma once
// Where tensors of any strides stand at an item of a loop over their elements: 32-bit indices, and
// no division.
#include <bs/kernels/strided.h>

#include <algorithm>
#include <bit>
#include <cstdint>
#include <functional>
#include <numeric>
#include <type_traits>

namespace bs::cuda {

/// Division by a number that the host knows, as a multiplication (Granlund and Montgomery, 1994),
/// of numbers below 2^31.
struct Divisor {
  uint32_t number = 1, factor = 1;
  int shift = 0;

  Divisor() = default;
  explicit Divisor(int64_t n) : number(static_cast<uint32_t>(n)) {
    shift = n > 1 ? static_cast<int>(std::bit_width(number - 1)) : 0;
    factor = static_cast<uint32_t>(
        ((uint64_t{1} << 32) * ((uint64_t{1} << shift) - number)) / number + 1);
  }
#ifdef __CUDACC__
  __device__ uint32_t divide(uint32_t x) const { return (__umulhi(x, factor) + x) >> shift; }
#endif
};

/// A loop as device code walks it: axes innermost first, items of `pack` neighbours along the
/// innermost.
template <int M>
struct Walk {
  int rank = 0;
  Divisor extent[Dims::max_rank];
  int32_t step[Dims::max_rank][M] = {};  ///< in elements
  int32_t outermost[M] = {};  ///< the last of these, where a loop of one axis need not look for it

  Walk() = default;
  Walk(const StridedLoop<M>& loop, int pack) : rank(loop.rank) {
    for (int axis = 0; axis < rank; ++axis) {
      const int from = rank - 1 - axis, times = axis == 0 ? pack : 1;
      extent[axis] = Divisor(std::max<int64_t>(loop.shape[from] / times, 1));
      for (int n = 0; n < M; ++n)
        step[axis][n] = static_cast<int32_t>(loop.strides[n][from] * times);
    }
    std::copy_n(step[rank - 1], M, outermost);
  }
#ifdef __CUDACC__
  /// Where each tensor is at item i.
  __device__ void locate(uint32_t i, int32_t (&at)[M]) const {
#pragma unroll
    for (int n = 0; n < M; ++n) at[n] = 0;
#pragma unroll 1
    for (int axis = 0; axis < rank - 1; ++axis) {
      const uint32_t rest = extent[axis].divide(i);
      const auto index = static_cast<int32_t>(i - rest * extent[axis].number);
#pragma unroll
      for (int n = 0; n < M; ++n) at[n] += index * step[axis][n];
      i = rest;
    }
#pragma unroll
    for (int n = 0; n < M; ++n) at[n] += static_cast<int32_t>(i) * outermost[n];
  }
#endif
};

/// A tensor's axes in the order in which they lie in memory, the outermost first.
inline Dims memory_order(const Strides& strides) {
  Dims order = strides;
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](int64_t a, int64_t b) {
    return strides[static_cast<int>(a)] > strides[static_cast<int>(b)];
  });
  return order;
}

/// The loop over a shape with its axes in the order in which the first tensor lies in memory.
template <int M>
StridedLoop<M> ordered_loop(const Shape& shape, const std::array<Strides, M>& strides) {
  // Most tensors lie so already; the sort takes memory.
  if (std::ranges::is_sorted(strides[0], std::greater<>())) return {shape, strides};
  Shape sorted;
  std::array<Strides, M> each;
  for (const int64_t axis : memory_order(strides[0])) {
    const auto from = static_cast<int>(axis);
    if (shape[from] == 1) continue;
    sorted.push_back(shape[from]);
    for (size_t n = 0; n < M; ++n) each[n].push_back(strides[n][from]);
  }
  return {sorted, each};
}

/// Whether 32 bits hold every index and every offset.
template <int M>
bool fits_32_bits(const StridedLoop<M>& loop) {
  constexpr int64_t end = int64_t{1} << 31;
  bool fits = loop.numel() < end;
  for (int n = 0; n < M; ++n) {
    int64_t last = 0;
    for (int axis = 0; axis < loop.rank; ++axis)
      last += (loop.shape[axis] - 1) * loop.strides[n][axis];
    fits = fits && last < end;
  }
  return fits;
}

/// The loop in an order in which an input that repeats is read while the caches still hold it: of
/// stretches of neighbours, each for every index of an axis along which an input of many elements
/// repeats. A sum of [4, 4096, 4096] and [1, 4096, 4096] takes .81 of its time by that.
template <int M>
StridedLoop<M> near_repeats(const StridedLoop<M>& loop) {
  constexpr int64_t many = 1 << 21, longest = 8192, shortest = 1024;
  int64_t inside = loop.inner();
  for (int axis = loop.rank - 2; axis >= 0; inside *= loop.shape[axis--]) {
    bool repeats = false;
    for (int n = 1; n < M; ++n)
      repeats = repeats || (loop.strides[n][axis] == 0 && loop.inner_stride(n) == 1);
    if (!repeats || inside < many) continue;
    const int64_t stretch =
        loop.inner() <= longest ? loop.inner() : std::gcd(loop.inner(), longest);
    const bool cut = stretch < loop.inner();
    if (stretch < shortest || loop.rank + cut > Dims::max_rank) return loop;
    StridedLoop<M> near = loop;
    near.rank += cut;
    const auto put = [&](int to, int from, int64_t extent, int64_t times) {
      near.shape[to] = extent;
      for (int n = 0; n < M; ++n) near.strides[n][to] = loop.strides[n][from] * times;
    };
    const int last = loop.rank - 1;
    for (int i = axis; i < last - 1; ++i) put(i, i + 1, loop.shape[i + 1], 1);
    if (cut) put(last - 1, last, loop.inner() / stretch, stretch);
    put(near.rank - 2, axis, loop.shape[axis], 1);
    put(near.rank - 1, last, stretch, 1);
    return near;
  }
  return loop;
}

template <int M>
using Offsets = std::array<int64_t, static_cast<size_t>(M)>;

/// Calls f(loop, offsets) for parts of a loop that 32 bits index, with each tensor's offset there.
template <int M, class F>
void for_each_part(const StridedLoop<M>& loop, const std::type_identity_t<Offsets<M>>& offsets,
                   F&& f) {
  if (fits_32_bits(loop)) return f(loop, offsets);
  // The axis along which some tensor reaches farthest.
  int widest = 0;
  int64_t farthest = 0;
  for (int axis = 0; axis < loop.rank; ++axis)
    for (int n = 0; n < M; ++n) {
      const int64_t reach = (loop.shape[axis] - 1) * loop.strides[n][axis];
      if (reach <= farthest) continue;
      farthest = reach;
      widest = axis;
    }
  // Halves begin where vectors do.
  const int64_t half = std::max<int64_t>(loop.shape[widest] / 128 * 64, 1);
  StridedLoop<M> part = loop;
  part.shape[widest] = half;
  for_each_part(part, offsets, f);
  Offsets<M> from = offsets;
  for (int n = 0; n < M; ++n) from[static_cast<size_t>(n)] += half * loop.strides[n][widest];
  part.shape[widest] = loop.shape[widest] - half;
  for_each_part(part, from, f);
}

}  // namespace bs::cuda
