#pragma once
// A factor applied to one axis of a tile in shared memory.
#include <bs/kernels/cuda/device/kron/kron_tile.cuh>
#include <bs/kernels/cuda/device/ptx/mma.cuh>
#include <bs/kernels/cuda/device/tile/tile_product.cuh>

namespace bs::cuda::device {

/// What a factor is made of in shared memory.
template <class T, KronStep s, bool as_it_is = s.on_tensor_cores()>
struct KronFactorElement {
  using type = T;
  __device__ static T of(T x) { return x; }
};
template <class T, KronStep s>
struct KronFactorElement<T, s, false> {
  using type = wide<T>;
  __device__ static wide<T> of(T x) { return widen(x); }
};

/// Brings a factor into shared memory: for tensor cores as it is, else as numbers in padded rows.
/// What is dense is copied beside other work; else neighbours in memory are read by neighbours.
template <class T, KronStep s>
__device__ void kron_load_factor(void* memory, const T* w, long long row, long long col) {
  using U = typename KronFactorElement<T, s>::type;
  constexpr int vector = 16 / static_cast<int>(sizeof(T));
  constexpr int line = s.line();
  constexpr bool exchanged = s.on_tensor_cores() && s.kind() != KronStepKind::mma_columns;
  U* const to = static_cast<U*>(memory);
  const auto place = [](int e) { return exchanged ? kron_place<T>(e) : e; };
  if constexpr (sizeof(T) == sizeof(U) && s.q % vector == 0 &&
                (line == s.q || s.on_tensor_cores())) {
    if (col == 1 && (reinterpret_cast<unsigned long long>(w) | row * sizeof(T)) % 16 == 0) {
      for (int e = threadIdx.x * vector; e < s.p * s.q; e += s.threads * vector)
        copy_async_16(to + place(e / s.q * line + e % s.q), w + e / s.q * row + e % s.q, true);
      return;
    }
  }
  const bool turned = row < col;
#pragma unroll 8
  for (int e = threadIdx.x; e < s.p * line; e += s.threads) {
    const int i = turned ? e % s.p : e / line, j = turned ? e / s.p : e % line;
    const U value = j < s.q ? KronFactorElement<T, s>::of(w[i * row + j * col]) : U{};
    to[place(i * line + j)] = value;
  }
}

/// `N` results along q from row `i` of a padded factor, the same for all threads of a warp.
template <class W, int N>
__device__ __forceinline__ void kron_factor_row(const W* row, W (&values)[N]) {
  constexpr int vector = 16 / static_cast<int>(sizeof(W));
#pragma unroll
  for (int j = 0; j < N; j += vector) {
    const auto pack = *reinterpret_cast<const Pack<W, vector>*>(row + j);
#pragma unroll
    for (int v = 0; v < vector; ++v) values[j + v] = pack.at[v];
  }
}

/// What one thread computes of a step without tensor cores: `lanes` columns times `results` of q.
template <class T, KronStep s>
struct KronItem {
  using W = wide<T>;
  static constexpr int lanes = s.lanes(), results = s.results();
  static constexpr bool rows = s.kind() == KronStepKind::along_rows;
  W sum[lanes][results];
  int first, column;  ///< of the results; of the columns

  __device__ explicit KronItem(int item)
      : first(item / s.columns() * results), column(item % s.columns()) {}

  __device__ int row(int l) const { return column + l * s.columns(); }

  __device__ void compute(const T* x, const W* factor) {
#pragma unroll
    for (int l = 0; l < lanes; ++l)
#pragma unroll
      for (int j = 0; j < results; ++j) sum[l][j] = 0;
    if constexpr (rows) {
      constexpr int vector = s.vector();
#pragma unroll 1
      for (int i = 0; i < s.p; i += vector) {
        W values[lanes][vector];
#pragma unroll
        for (int l = 0; l < lanes; ++l)
          kron_read<T, vector>(x, (row(l) < s.outer ? row(l) : 0) * s.p + i, values[l]);
#pragma unroll
        for (int v = 0; v < vector; ++v) {
          W w[results];
          kron_factor_row<W, results>(factor + (i + v) * s.padded() + first, w);
#pragma unroll
          for (int l = 0; l < lanes; ++l)
#pragma unroll
            for (int j = 0; j < results; ++j) sum[l][j] += values[l][v] * w[j];
        }
      }
    } else {
      const int start = column * lanes / s.inner * s.p * s.inner + column * lanes % s.inner;
#pragma unroll 4
      for (int i = 0; i < s.p; ++i) {
        W values[lanes], w[results];
        kron_read<T, lanes>(x, start + i * s.inner, values);
        kron_factor_row<W, results>(factor + i * s.padded() + first, w);
#pragma unroll
        for (int l = 0; l < lanes; ++l)
#pragma unroll
          for (int j = 0; j < results; ++j) sum[l][j] += values[l] * w[j];
      }
    }
  }

  __device__ void store(T* y) const {
    if constexpr (rows) {
      constexpr int vector = s.q % (16 / static_cast<int>(sizeof(T))) == 0 &&
                                     results % (16 / static_cast<int>(sizeof(T))) == 0
                                 ? 16 / static_cast<int>(sizeof(T))
                                 : 1;
#pragma unroll
      for (int l = 0; l < lanes; ++l) {
        if (row(l) >= s.outer) continue;
#pragma unroll
        for (int j = 0; j < results; j += vector) {
          if (first + j >= s.q) continue;
          W values[vector];
#pragma unroll
          for (int v = 0; v < vector; ++v) values[v] = sum[l][j + v];
          kron_write<T, vector>(y, row(l) * s.q + first + j, values);
        }
      }
    } else {
      const int start = column * lanes / s.inner * s.q * s.inner + column * lanes % s.inner;
#pragma unroll
      for (int j = 0; j < results; ++j) {
        if (first + j >= s.q) continue;
        W values[lanes];
#pragma unroll
        for (int l = 0; l < lanes; ++l) values[l] = sum[l][j];
        kron_write<T, lanes>(y, start + (first + j) * s.inner, values);
      }
    }
  }
};

/// A step on threads. In place, a thread either owns all that it reads or waits for all readers.
template <class T, KronStep s>
__device__ __forceinline__ void kron_threads_step(const T* x, T* y, const wide<T>* factor) {
  if constexpr (s.in_place() && !s.exclusive()) {
    KronItem<T, s> item(threadIdx.x < s.items() ? threadIdx.x : 0);
    item.compute(x, factor);
    __syncthreads();
    if (threadIdx.x < s.items()) item.store(y);
  } else {
#pragma unroll 1
    for (int i = threadIdx.x; i < s.items(); i += s.threads) {
      KronItem<T, s> item(i);
      item.compute(x, factor);
      item.store(y);
    }
  }
}

/// Four 8 x 8 matrices of a tile: lane l gives row l % 8 of matrix l / 8, an element number.
template <bool transposed, class T>
__device__ __forceinline__ void kron_matrices(unsigned (&r)[4], const T* tile, int e) {
  load_matrix_x4<transposed>(r, tile + kron_place<T>(e));
}

template <class T>
__device__ __forceinline__ void kron_write_pair(T* tile, int e, float low, float high) {
  const float pair[2] = {low, high};
  *reinterpret_cast<Pack<T, 2>*>(tile + kron_place<T>(e)) = narrow_pack<T, 2>(pair);
}

/// A step on tensor cores with the factor from the left: a warp has 16, or 8, columns.
template <class T, KronStep s>
__device__ __forceinline__ void kron_mma_inner(const T* x, T* y, const T* factor) {
  constexpr int pairs = s.inner % 16 == 0 ? 2 : 1, width = 8 * pairs;
  constexpr int slabs = s.outer * s.inner / width, tiles = s.q / 16;
  const int lane = threadIdx.x % 32, side = lane % 8, half = lane / 8 % 2 * 8, high = lane / 16 * 8;
#pragma unroll 1
  for (int slab = threadIdx.x / 32; slab < slabs; slab += s.threads / 32) {
    const int o = slab * width / s.inner, n = slab * width % s.inner;
    float sum[tiles][pairs][4];
#pragma unroll
    for (int m = 0; m < tiles; ++m)
#pragma unroll
      for (int c = 0; c < pairs; ++c)
#pragma unroll
        for (int i = 0; i < 4; ++i) sum[m][c][i] = 0;
#pragma unroll 1
    for (int k = 0; k < s.p; k += 16) {
      // Depth halves first, then columns; with 8 columns the second half of the lanes repeats.
      unsigned right[4];
      kron_matrices<true>(right, x,
                          (o * s.p + k + side + half) * s.inner + n + (pairs == 2 ? high : 0));
#pragma unroll
      for (int m = 0; m < tiles; ++m) {
        // Element (row m, depth k) is (k, m) of the factor: (row half, depth half) 00 10 01 11.
        unsigned left[4];
        kron_matrices<true>(left, factor, (k + side + high) * s.q + 16 * m + half);
#pragma unroll
        for (int c = 0; c < pairs; ++c) {
          const unsigned b[2] = {right[2 * c], right[2 * c + 1]};
          mma_16816(sum[m][c], left, b, T{});
        }
      }
    }
    __syncwarp();
#pragma unroll
    for (int m = 0; m < tiles; ++m)
#pragma unroll
      for (int c = 0; c < pairs; ++c)
#pragma unroll
        for (int h = 0; h < 2; ++h)
          kron_write_pair(
              y, (o * s.q + 16 * m + lane / 4 + 8 * h) * s.inner + n + 8 * c + lane % 4 * 2,
              sum[m][c][2 * h], sum[m][c][2 * h + 1]);
  }
}

/// A step on tensor cores with the factor from the right: a warp has 16 rows.
template <class T, KronStep s>
__device__ __forceinline__ void kron_mma_rows(const T* x, T* y, const T* factor) {
  constexpr int slabs = s.outer / 16, tiles = s.q / 16;
  const int lane = threadIdx.x % 32, side = lane % 8, half = lane / 8 % 2 * 8, high = lane / 16 * 8;
#pragma unroll 1
  for (int slab = threadIdx.x / 32; slab < slabs; slab += s.threads / 32) {
    float sum[tiles][2][4];
#pragma unroll
    for (int m = 0; m < tiles; ++m)
#pragma unroll
      for (int c = 0; c < 2; ++c)
#pragma unroll
        for (int i = 0; i < 4; ++i) sum[m][c][i] = 0;
#pragma unroll 1
    for (int k = 0; k < s.p; k += 16) {
      unsigned left[4];
      kron_matrices<false>(left, x, (16 * slab + side + half) * s.p + k + high);
#pragma unroll
      for (int m = 0; m < tiles; ++m) {
        unsigned right[4];
        kron_matrices<true>(right, factor, (k + side + half) * s.q + 16 * m + high);
#pragma unroll
        for (int c = 0; c < 2; ++c) {
          const unsigned b[2] = {right[2 * c], right[2 * c + 1]};
          mma_16816(sum[m][c], left, b, T{});
        }
      }
    }
    __syncwarp();
#pragma unroll
    for (int m = 0; m < tiles; ++m)
#pragma unroll
      for (int c = 0; c < 2; ++c)
#pragma unroll
        for (int h = 0; h < 2; ++h)
          kron_write_pair(y, (16 * slab + lane / 4 + 8 * h) * s.q + 16 * m + 8 * c + lane % 4 * 2,
                          sum[m][c][2 * h], sum[m][c][2 * h + 1]);
  }
}

template <class T, int products>
struct KronRule {
  using type = TileMultiply<T>;
};
template <>
struct KronRule<float, 1> {
  using type = TileMultiplyTf32;
};

/// How f32 and f64 are multiplied on tensor cores, a step at a time: a lane has of 16 rows and 16
/// columns the sums that TileMultiply says.
template <class T, int products>
struct KronMultiply {
  using Rule = typename KronRule<T, products>::type;
  using Held = typename Rule::Held;
  static constexpr int depth = Rule::depth, parts = depth / 4;

  /// Sets element i of a fragment, in its order.
  __device__ static void put(Fragment<T>& f, int i, T x) {
    if constexpr (sizeof(T) == 8) {
      f.r[i] = x;
    } else {
      f.r[i] = __float_as_uint(x);
    }
  }
  __device__ static Held hold(const Fragment<T>& f) {
    if constexpr (sizeof(T) == 8) {
      return f;
    } else {
      Held held;
      Rule::hold(held, f);
      return held;
    }
  }
  __device__ static void add(T (&sum)[2][4], const Held& a, const Held& b) {
    using One = const Held(&)[1];
    const One left = reinterpret_cast<One>(a), right = reinterpret_cast<One>(b);
    if constexpr (sizeof(T) == 8) {
      Rule::multiply(reinterpret_cast<T(&)[1][2][4]>(sum), 0, left, b);
    } else if constexpr (Rule::apart) {
      T part[1][2][4] = {};
      Rule::template multiply<1, 1>(part, left, right);
#pragma unroll
      for (int c = 0; c < 2; ++c)
#pragma unroll
        for (int i = 0; i < 4; ++i) sum[c][i] += part[0][c][i];
    } else {
      Rule::template multiply<1, 1>(reinterpret_cast<T(&)[1][2][4]>(sum), left, right);
    }
  }
};

/// A step of f32 or f64 on tensor cores: a warp has 16 columns, which are pairs of an outer and an
/// inner index, of all results or of a part of them.
template <class T, KronStep s>
__device__ __forceinline__ void kron_mma_columns(const T* x, T* y, const T* factor) {
  using M = KronMultiply<T, s.products>;
  constexpr int tiles = s.part() / 16, parts = s.parts();
  constexpr int items = s.outer * s.inner / 16 * parts;
  constexpr int group = 4;  // ptxas reads ahead for all that it sees, until registers are spilled
  const int lane = threadIdx.x % 32, side = lane / 4, at = lane % 4;
  // Of the first element of a column, in tiles whose columns have `extent` elements.
  const auto start = [](int column, int extent) {
    return column / s.inner * extent * s.inner + column % s.inner;
  };
#pragma unroll 1
  for (int item = threadIdx.x / 32; item < items; item += s.threads / 32) {
    const int column = item / parts * 16, q = item % parts * s.part();
    const int from[2] = {start(column + side, s.p), start(column + side + 8, s.p)};
    T sum[tiles][2][4];
#pragma unroll
    for (int m = 0; m < tiles; ++m)
#pragma unroll
      for (int i = 0; i < 8; ++i) sum[m][i / 4][i % 4] = 0;
#pragma unroll
    for (int first = 0; first < tiles; first += group)
#pragma unroll 1
      for (int k = 0; k < s.p; k += M::depth) {
        Fragment<T> right;
#pragma unroll
        for (int i = 0; i < 2 * M::parts; ++i)
          M::put(right, i,
                 x[kron_place<T>(from[i / M::parts] + (k + i % M::parts * 4 + at) * s.inner)]);
        const typename M::Held b = M::hold(right);
        const T* const row = factor + (k + at) * s.line() + q + side;
#pragma unroll
        for (int m = first; m < first + group && m < tiles; ++m) {
          Fragment<T> left;
#pragma unroll
          for (int i = 0; i < 2 * M::parts; ++i)
            M::put(left, i, row[i / 2 * 4 * s.line() + 16 * m + i % 2 * 8]);
          M::add(sum[m], M::hold(left), b);
        }
      }
    __syncwarp();
#pragma unroll
    for (int c = 0; c < 2; ++c)
#pragma unroll
      for (int next = 0; next < 2; ++next) {
        const int to = start(column + 8 * c + at * 2 + next, s.q);
#pragma unroll
        for (int m = 0; m < tiles; ++m)
#pragma unroll
          for (int h = 0; h < 2; ++h)
            y[kron_place<T>(to + (q + 16 * m + side + 8 * h) * s.inner)] = sum[m][c][2 * h + next];
      }
  }
}

/// y = x with the factor applied; they are one tile where the step is in place. Every thread has
/// done its part when it returns.
template <class T, KronStep s>
__device__ __forceinline__ void kron_step(const T* x, T* y, const void* factor) {
  if constexpr (s.kind() == KronStepKind::mma_inner) {
    kron_mma_inner<T, s>(x, y, static_cast<const T*>(factor));
  } else if constexpr (s.kind() == KronStepKind::mma_rows) {
    kron_mma_rows<T, s>(x, y, static_cast<const T*>(factor));
  } else if constexpr (s.kind() == KronStepKind::mma_columns) {
    kron_mma_columns<T, s>(x, y, static_cast<const T*>(factor));
  } else {
    kron_threads_step<T, s>(x, y, static_cast<const wide<T>*>(factor));
  }
  __syncthreads();
}

}  // namespace bs::cuda::device
