#pragma once
// A tile of kron_matmul in shared memory: where its elements lie, and the way from and to global
// memory.
#include <bs/kernels/cuda/device/kron/kron_shape.cuh>
#include <bs/kernels/cuda/device/ptx/async_copy.cuh>
#include <bs/kernels/cuda/device/tile/arithmetic.cuh>
#include <bs/kernels/cuda/device/tile/pack.cuh>

namespace bs::cuda::device {

/// Where element `e` lies. Chunks of 16 bytes exchange places within lines of 128 by a hash of the
/// line, so that any power of two as a stride of 16 bytes and more meets all banks.
template <class T>
__device__ __forceinline__ int kron_place(int e) {
  constexpr int vector = 16 / static_cast<int>(sizeof(T));
  const int chunk = e / vector, line = chunk >> 3;
  const int exchange = (line ^ line >> 3 ^ line >> 6 ^ line >> 9) & 7;
  return (chunk ^ exchange) * vector + e % vector;
}

/// N neighbours of a tile, which lie in one chunk.
template <class T, int N>
__device__ __forceinline__ void kron_read(const T* tile, int e, wide<T> (&values)[N]) {
  if constexpr (N == 1) {
    values[0] = widen(tile[kron_place<T>(e)]);
  } else {
    const auto pack = *reinterpret_cast<const Pack<T, N>*>(tile + kron_place<T>(e));
#pragma unroll
    for (int i = 0; i < N; ++i) values[i] = widen(pack.at[i]);
  }
}
template <class T, int N>
__device__ __forceinline__ void kron_write(T* tile, int e, const wide<T> (&values)[N]) {
  if constexpr (N == 1) {
    tile[kron_place<T>(e)] = narrow<T>(values[0]);
  } else {
    *reinterpret_cast<Pack<T, N>*>(tile + kron_place<T>(e)) = narrow_pack<T, N>(values);
  }
}

/// Which part of a pass a tile is: rows from `row` on, or of one row the columns from `column` on.
struct KronPart {
  long long row, column;
  int rows, columns;  ///< that exist

  template <KronShape shape>
  __device__ static KronPart of(unsigned tile, unsigned chunks, long long outer, long long inner) {
    KronPart part;
    part.row = static_cast<long long>(tile / chunks) * shape.rows;
    part.column = static_cast<long long>(tile % chunks) * shape.chunk;
    part.rows = static_cast<int>(outer - part.row < shape.rows ? outer - part.row : shape.rows);
    part.columns =
        static_cast<int>(inner - part.column < shape.chunk ? inner - part.column : shape.chunk);
    return part;
  }
};

/// Calls `f(e, g, exists)` for every N-th element e of a tile [rows, extent, chunk]; g is its place
/// in global memory from the part's first row on. N divides lines and chunks.
template <KronShape shape, int extent, bool whole, int N, int unroll, class F>
__device__ __forceinline__ void kron_each(const KronPart& part, long long inner, const F& f) {
  constexpr int line = extent * shape.chunk, elements = shape.rows * line;
#pragma unroll(unroll)
  for (int e = threadIdx.x * N; e < elements; e += shape.threads * N) {
    if constexpr (whole) {
      f(e, static_cast<long long>(e), e < part.rows * line);
    } else {
      const int at = e / shape.chunk, column = e % shape.chunk;
      f(e, at * inner + part.column + column, column < part.columns);
    }
  }
}

/// Copies of a tile that a thread has on their way at once. The sums of factor gradients in f64
/// fill the registers meanwhile, and addresses of more copies would be spilled.
template <class T>
constexpr int kron_unroll(int n) {
  return sizeof(T) == 8 ? 1 : n;
}

/// Brings a tile [rows, extent, chunk] into shared memory, zeros where there is nothing. `whole`: a
/// tile has the whole inner extent. `aligned`: chunks of 16 bytes are whole or absent.
template <class T, KronShape shape, int extent, bool whole, bool aligned>
__device__ void kron_load(T* tile, const T* x, const KronPart& part, long long inner) {
  const T* const from = x + part.row * extent * inner;
  constexpr int vector = aligned ? 16 / static_cast<int>(sizeof(T)) : 1;
  constexpr int unroll = kron_unroll<T>(2);
  kron_each<shape, extent, whole, vector, unroll>(
      part, inner, [&](int e, long long g, bool exists) {
        T* const to = tile + kron_place<T>(e);
        if constexpr (aligned) {
          copy_async_16(to, exists ? from + g : x, exists);
        } else {
          *to = exists ? from[g] : narrow<T>(wide<T>(0));
        }
      });
}

template <class W, int N>
__device__ __forceinline__ void kron_activate(int activation, W (&x)[N]) {
  const auto each = [&](const auto& f) {
#pragma unroll
    for (int i = 0; i < N; ++i) x[i] = f(x[i]);
  };
  switch (activation) {  // the order of bs::Activation
    case 1:
      return each([](W v) { return v < W(0) ? W(0) : v; });
    case 2:
      return each([](W v) { return tanh(v); });
    case 3:
      return each([](W v) { return W(1) / (W(1) + exp(-v)); });
    case 4:
      return each([](W v) { return v / (W(1) + exp(-v)); });
    case 5:
      return each([](W v) { return v * W(0.5) * erfc(v * W(-0.70710678118654752)); });
    case 6:
      return each([](W v) {
        return v / (W(1) + exp(W(-1.5957691216057308) * v * (W(1) + W(0.044715) * v * v)));
      });
    default:
      return;
  }
}

/// The way back; with `finish` through bias, a copy of the argument, and the activation.
template <class T, KronShape shape, int extent, bool whole, bool aligned, bool finish>
__device__ void kron_store(const T* tile, T* y, const KronPart& part, long long inner,
                           const T* bias, T* before, int activation) {
  constexpr int vector = aligned ? 16 / static_cast<int>(sizeof(T)) : 1;
  constexpr int line = extent * shape.chunk;
  const long long first = part.row * extent * inner;
  kron_each<shape, extent, whole, vector, finish ? 1 : kron_unroll<T>(4)>(
      part, inner, [&](int e, long long g, bool exists) {
        if (!exists) return;
        if constexpr (!finish && aligned) {
          *reinterpret_cast<uint4*>(y + first + g) =
              *reinterpret_cast<const uint4*>(tile + kron_place<T>(e));
        } else {
          wide<T> values[vector];
          kron_read<T, vector>(tile, e, values);
          const long long column = whole ? e % line : g;
#pragma unroll
          for (int v = 0; v < vector; ++v) {
            if (bias) values[v] += widen(bias[column + v]);
            if (before) before[first + g + v] = narrow<T>(values[v]);
          }
          kron_activate(activation, values);
#pragma unroll
          for (int v = 0; v < vector; ++v) y[first + g + v] = narrow<T>(values[v]);
        }
      });
}

}  // namespace bs::cuda::device
