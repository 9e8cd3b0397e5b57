#pragma once
// Backward of one pass of kron_matmul: a CTA computes the tiles between factors again and keeps
// them, takes gradients back through all factors, and sums the gradients of factors on the way.
#include <bs/kernels/cuda/device/kron/kron_contract.cuh>
#include <bs/kernels/cuda/device/kron/kron_forward.cuh>

namespace bs::cuda::device {

template <class T, KronShape shape, int i = 0>
__device__ void kron_load_transposed(unsigned char* memory, const KronFactor* factors) {
  if constexpr (i < shape.count) {
    const KronFactor& f = factors[i];
    kron_load_factor<T, shape.step_back(i)>(memory + shape.factor_back_at(i),
                                            static_cast<const T*>(f.data) + blockIdx.y * f.group,
                                            f.col, f.row);
    kron_load_transposed<T, shape, i + 1>(memory, factors);
  }
}

/// The tile before factor i.
template <class T, KronShape shape, int i>
__device__ __forceinline__ T* kron_before(unsigned char* memory) {
  return reinterpret_cast<T*>(memory + shape.before_at(i));
}

/// Fills the tiles before the factors ahead of factor i.
template <class T, KronShape shape, int i = shape.count - 1>
__device__ __forceinline__ void kron_prefixes(unsigned char* memory, const unsigned char* factors) {
  if constexpr (i > 0) {
    kron_step<T, shape.step(i)>(kron_before<T, shape, i>(memory),
                                kron_before<T, shape, i - 1>(memory),
                                factors + shape.factor_at(i) - shape.factor_at(1));
    kron_prefixes<T, shape, i - 1>(memory, factors);
  }
}

/// Takes gradients back through factor i and those behind it; returns where they are.
template <class T, KronShape shape, int i, class Sums>
__device__ __forceinline__ T* kron_steps_back(unsigned char* memory, const unsigned char* factors,
                                              T* g, T* other, Sums& sums) {
  if constexpr (i == shape.count) {
    return g;
  } else {
    constexpr KronStep s = shape.step_back(i);
    sums.own.add(kron_before<T, shape, i>(memory), g);
    if constexpr (s.in_place()) __syncthreads();
    T* const to = s.in_place() ? g : other;
    kron_step<T, s>(g, to, factors + shape.factor_back_at(i));
    return kron_steps_back<T, shape, i + 1>(memory, factors, to, s.in_place() ? other : g,
                                            sums.others);
  }
}

template <class T, KronShape shape, bool whole, bool aligned>
__device__ void kron_backward(const KronBackwardArguments& a) {
  extern __shared__ __align__(128) unsigned char memory[];
  T* const first = reinterpret_cast<T*>(memory + shape.before_at(shape.count));
  T* const second = first + shape.tile_bytes() / static_cast<int>(sizeof(T));
  unsigned char* const factors = memory + shape.backward_tiles();
  unsigned char* const transposed = factors + shape.again_bytes();
  constexpr int in = shape.in() / shape.rows / shape.chunk;
  constexpr int out = shape.out() / shape.rows / shape.chunk;
  constexpr int weights = shape.weights(shape.count);
  const T* const x = static_cast<const T*>(a.x) + blockIdx.y * a.outer * in * a.inner;
  const T* const dy = static_cast<const T*>(a.dy) + blockIdx.y * a.outer * out * a.inner;
  T* const dx = static_cast<T*>(a.dx) + blockIdx.y * a.outer * in * a.inner;
  kron_load_factors<T, shape, 1>(factors, a.factors);
  kron_load_transposed<T, shape>(transposed, a.factors);
  KronContractions<T, shape> sums;
  for (unsigned tile = blockIdx.x; tile < a.tiles; tile += gridDim.x) {
    const KronPart part = KronPart::of<shape>(tile, a.chunks, a.outer, a.inner);
    kron_load<T, shape, in, whole, aligned>(kron_before<T, shape, shape.count - 1>(memory), x, part,
                                            a.inner);
    commit_copies();
    kron_load<T, shape, out, whole, aligned>(first, dy, part, a.inner);
    commit_copies();
    wait_copies<1>();
    __syncthreads();
    kron_prefixes<T, shape>(memory, factors);
    wait_copies<0>();
    __syncthreads();
    const T* const g = kron_steps_back<T, shape, 0>(memory, transposed, first, second, sums);
    if (a.dx)
      kron_store<T, shape, in, whole, aligned, false>(g, dx, part, a.inner, nullptr, nullptr, 0);
    __syncthreads();
  }
  const long long cta = static_cast<long long>(blockIdx.y) * gridDim.x + blockIdx.x;
  sums.store(memory, static_cast<wide<T>*>(a.partials) + cta * weights);
}

/// Sums what the CTAs of a group have, in their order: a thread for each element of the factors.
template <class T>
__device__ void kron_sum(const KronSumArguments& a) {
  const int e = blockIdx.x * blockDim.x + threadIdx.x;
  if (e >= a.elements) return;
  int factor = 0, begin = 0;
  while (e >= a.ends[factor]) begin = a.ends[factor++];
  T* const result = static_cast<T*>(a.results[factor]);
  if (!result) return;
  const wide<T>* from = static_cast<const wide<T>*>(a.partials) +
                        static_cast<long long>(blockIdx.y) * a.ctas * a.elements + e;
  wide<T> sum = 0;
#pragma unroll 8
  for (int cta = 0; cta < a.ctas; ++cta) sum += from[static_cast<long long>(cta) * a.elements];
  result[static_cast<long long>(blockIdx.y) * (a.ends[factor] - begin) + e - begin] =
      narrow<T>(sum);
}

}  // namespace bs::cuda::device
