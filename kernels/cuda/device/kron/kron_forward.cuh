#pragma once
// One pass of kron_matmul: a CTA takes tiles through all factors of the pass.
#include <bs/kernels/cuda/device/kron/kron_step.cuh>

namespace bs::cuda::device {

/// Brings the factors from number i on, one behind the other.
template <class T, KronShape shape, int i, int first = i>
__device__ void kron_load_factors(unsigned char* memory, const KronFactor* factors) {
  if constexpr (i < shape.count) {
    const KronFactor& f = factors[i];
    kron_load_factor<T, shape.step(i)>(memory + shape.factor_at(i) - shape.factor_at(first),
                                       static_cast<const T*>(f.data) + blockIdx.y * f.group, f.row,
                                       f.col);
    kron_load_factors<T, shape, i + 1, first>(memory, factors);
  }
}

/// Steps i to 0; returns where the results are.
template <class T, KronShape shape, int i>
__device__ __forceinline__ T* kron_steps(T* tile, T* other, const unsigned char* factors) {
  if constexpr (i < 0) {
    return tile;
  } else {
    constexpr KronStep s = shape.step(i);
    T* const to = s.in_place() ? tile : other;
    kron_step<T, s>(tile, to, factors + shape.factor_at(i));
    return kron_steps<T, shape, i - 1>(to, s.in_place() ? other : tile, factors);
  }
}

template <class T, KronShape shape, bool whole, bool aligned, bool finish>
__device__ void kron_forward(const KronForwardArguments& a) {
  extern __shared__ __align__(128) unsigned char memory[];
  T* const first = reinterpret_cast<T*>(memory);
  T* const second = reinterpret_cast<T*>(memory + shape.tile_bytes());
  unsigned char* const factors = memory + shape.tile_bytes() * (shape.two_tiles() ? 2 : 1);
  constexpr int in = shape.in() / shape.rows / shape.chunk;
  constexpr int out = shape.out() / shape.rows / shape.chunk;
  const T* const x = static_cast<const T*>(a.x) + blockIdx.y * a.outer * in * a.inner;
  const long long results = blockIdx.y * a.outer * out * a.inner;
  T* const y = static_cast<T*>(a.y) + results;
  T* const before = a.before ? static_cast<T*>(a.before) + results : nullptr;
  for (unsigned tile = blockIdx.x; tile < a.tiles; tile += gridDim.x) {
    const KronPart part = KronPart::of<shape>(tile, a.chunks, a.outer, a.inner);
    kron_load<T, shape, in, whole, aligned>(first, x, part, a.inner);
    if (tile == blockIdx.x) kron_load_factors<T, shape, 0>(factors, a.factors);
    commit_copies();
    wait_copies<0>();
    __syncthreads();
    const T* const at = kron_steps<T, shape, shape.count - 1>(first, second, factors);
    kron_store<T, shape, out, whole, aligned, finish>(
        at, y, part, a.inner, static_cast<const T*>(a.bias), before, a.activation);
    __syncthreads();
  }
}

}  // namespace bs::cuda::device
