#pragma once
// Runs a function of elements over operands of any strides. Dense operands are loaded and stored 16
// bytes at a time.
#include <bs/kernels/operand.h>
#include <bs/kernels/strided.h>
#include <bs/lib/cuda/launch.h>
#include <bs/kernels/cuda/device/tile/arithmetic.cuh>
#include <bs/kernels/cuda/device/tile/pack.cuh>

#include <algorithm>
#include <array>
#include <utility>

namespace bs::cuda {

/// An input as kernels read it: an array, or where there is none, one number. Every thread of a
/// launch takes the same side of that branch.
template <class T>
struct Source {
  using W = device::wide<T>;
  const T* data;
  W number;

  __device__ W read(int64_t at) const { return data ? device::widen(data[at]) : number; }

  /// N neighbours, from element N * at on.
  template <int N>
  __device__ device::Pack<W, N> read_pack(int64_t at) const {
    device::Pack<W, N> out;
    if (data) {
      const auto in = reinterpret_cast<const device::Pack<T, N>*>(data)[at];
#pragma unroll
      for (int i = 0; i < N; ++i) out.at[i] = device::widen(in.at[i]);
    } else {
#pragma unroll
      for (int i = 0; i < N; ++i) out.at[i] = number;
    }
    return out;
  }
};

namespace detail {

template <class T>
Source<device_type<T>> source(const Tensor& x) {
  return {pointer<T>(x), {}};
}
template <class T>
Source<device_type<T>> source(const Operand& x) {
  using W = typename Source<device_type<T>>::W;
  if (!x.tensor.defined()) return {nullptr, x.number.to<W>()};
  return source<T>(x.tensor);
}

inline Strides strides_over(const Tensor& x, int) { return x.strides(); }
inline Strides strides_over(const Operand& x, int rank) { return x.strides(rank); }

template <int N, class F, class R, class... X>
__device__ device::Pack<R, N> apply(const F& f, const X&... x) {
  device::Pack<R, N> out;
#pragma unroll
  for (int i = 0; i < N; ++i) out.at[i] = device::narrow<R>(f(x.at[i]...));
  return out;
}

/// The first `packs` packs of N elements, then what is left of `n` elements.
template <int N, class F, class R, class... T>
__global__ void dense_kernel(const F f, R* y, int64_t packs, int64_t n, const Source<T>... x) {
  const int64_t first = int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  const int64_t step = int64_t{gridDim.x} * blockDim.x;
  for (int64_t i = first; i < packs; i += step)
    reinterpret_cast<device::Pack<R, N>*>(y)[i] = apply<N, F, R>(f, x.template read_pack<N>(i)...);
  for (int64_t i = packs * N + first; i < n; i += step) y[i] = device::narrow<R>(f(x.read(i)...));
}

/// Where each of M tensors is at element `i` of the loop.
template <class Index, int M>
__device__ void locate(const StridedLoop<M>& loop, Index i, int64_t (&at)[M]) {
#pragma unroll
  for (int n = 0; n < M; ++n) at[n] = 0;
  for (int axis = loop.rank - 1; axis >= 0; --axis) {
    const auto extent = static_cast<Index>(loop.shape[axis]);
    const Index rest = axis > 0 ? i / extent : 0;
    const auto index = static_cast<int64_t>(i - rest * extent);
    i = rest;
#pragma unroll
    for (int n = 0; n < M; ++n) at[n] += index * loop.strides[n][axis];
  }
}

template <class F, class R, class... T, size_t... I>
__device__ void map_at(const F& f, R* y, const int64_t (&at)[sizeof...(T) + 1],
                       std::index_sequence<I...>, const Source<T>&... x) {
  y[at[0]] = device::narrow<R>(f(x.read(at[I + 1])...));
}

template <class F, class R, class... T>
__global__ void strided_kernel(const F f,
                               const __grid_constant__ StridedLoop<sizeof...(T) + 1> loop, R* y,
                               int64_t total, const Source<T>... x) {
  const int64_t step = int64_t{gridDim.x} * blockDim.x;
  int64_t at[sizeof...(T) + 1];
  for (int64_t i = int64_t{blockIdx.x} * blockDim.x + threadIdx.x; i < total; i += step) {
    // Division of 32 bits takes a fraction of the time of that of 64.
    if (total <= UINT32_MAX) {
      locate(loop, static_cast<uint32_t>(i), at);
    } else {
      locate(loop, static_cast<uint64_t>(i), at);
    }
    map_at(f, y, at, std::index_sequence_for<T...>{}, x...);
  }
}

template <int N, class T>
bool aligned(const T* data) {
  return reinterpret_cast<uintptr_t>(data) % (N * sizeof(T)) == 0;
}

template <class F, class R, class... T>
void launch_dense(const char* op, const F& f, R* y, int64_t n, Device device, Stream stream,
                  const Source<T>&... x) {
  constexpr int threads = 256;
  constexpr int N = 16 / static_cast<int>(std::max({sizeof(R), sizeof(T)...}));
  const int64_t packs = aligned<N>(y) && (aligned<N>(x.data) && ...) ? n / N : 0;
  dense_kernel<N>
      <<<grid_size(packs > 0 ? packs : n, threads, device), threads, 0, native(stream)>>>(
          f, y, packs, n, x...);
  BS_CUDA_CHECK_LAUNCH(op);
}

}  // namespace detail

/// y = f(x...) element by element, all tensors contiguous and of y's shape. R and T are the element
/// types of y and of the inputs; f takes wide values.
template <class R, class... T, class F>
void map_dense(const char* op, const F& f, const Tensor& y, Stream stream,
               const std::array<Tensor, sizeof...(T)>& x) {
  [&]<size_t... I>(std::index_sequence<I...>) {
    detail::launch_dense(op, f, pointer<R>(y), y.numel(), y.device(), stream,
                         detail::source<T>(x[I])...);
  }
  (std::index_sequence_for<T...>{});
}

/// The same for tensors of any strides, expanded to y's shape, and Operands.
template <class R, class... T, class F, class... X>
void map(const char* op, const F& f, const Tensor& y, Stream stream, const X&... x) {
  constexpr int threads = 256;
  constexpr int inputs = sizeof...(X);
  const StridedLoop<inputs + 1> loop(y.shape(),
                                     {y.strides(), detail::strides_over(x, y.rank())...});
  const int64_t total = loop.numel();
  const bool scalar[] = {(detail::source<T>(x).data == nullptr)...};
  bool dense = loop.rank == 1 && loop.inner_stride(0) == 1;
  for (int i = 0; i < inputs; ++i)
    dense = dense && (scalar[i] || loop.inner_stride(i + 1) == 1 || total == 1);
  if (dense)
    return detail::launch_dense(op, f, pointer<R>(y), total, y.device(), stream,
                                detail::source<T>(x)...);
  detail::strided_kernel<<<grid_size(total, threads, y.device()), threads, 0, native(stream)>>>(
      f, loop, pointer<R>(y), total, detail::source<T>(x)...);
  BS_CUDA_CHECK_LAUNCH(op);
}

}  // namespace bs::cuda
