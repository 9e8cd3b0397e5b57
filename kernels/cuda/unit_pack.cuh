#pragma once
// Elements moved as they are, in units as large as rows and where they begin allow.
#include <bs/lib/dtype.h>
#include <bs/kernels/cuda/device/tile/pack.cuh>

#include <algorithm>
#include <bit>
#include <cstdint>
#include <type_traits>

namespace bs::cuda {

/// An element of a number of bytes, as it is moved.
template <size_t bytes>
using Bits = std::conditional_t<
    bytes == 1, unsigned char,
    std::conditional_t<bytes == 2, unsigned short, std::conditional_t<bytes == 4, int, long>>>;

/// Calls f(Type<Unit>) with the largest unit of 1 to 16 bytes that divides what the set bits of
/// `all` stand for: addresses and lengths in bytes, or-ed.
template <class F>
void visit_unit(uint64_t all, F&& f) {
  switch (std::min(std::countr_zero(all), 4)) {
    case 0:
      return f(Type<unsigned char>{});
    case 1:
      return f(Type<unsigned short>{});
    case 2:
      return f(Type<unsigned>{});
    case 3:
      return f(Type<uint2>{});
    default:
      return f(Type<uint4>{});
  }
}

/// Stores K units, or as many as are `left` before the end.
template <class Unit, int K>
__device__ void store_units(Unit* to, const device::Pack<Unit, K>& units, uint32_t left) {
  if (K == 1 || left >= K) {
    *reinterpret_cast<device::Pack<Unit, K>*>(to) = units;
  } else {
#pragma unroll
    for (int k = 0; k < K; ++k)
      if (k < left) to[k] = units.at[k];
  }
}

}  // namespace bs::cuda
