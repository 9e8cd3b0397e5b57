#pragma once
// The gradient of a factor: a tile before it times the gradients behind it, summed in registers
// from the first tile of a CTA to the last.
#include <bs/kernels/cuda/device/kron/kron_step.cuh>

namespace bs::cuda::device {

template <class T, KronContract c>
struct KronContraction {
  using W = wide<T>;
  W sum[c.sums()];

  __device__ KronContraction() {
#pragma unroll
    for (int i = 0; i < c.sums(); ++i) sum[i] = 0;
  }

  __device__ void add(const T* h, const T* g) {
    if constexpr (c.tensor() && sizeof(T) == 2) {
      add_on_tensor_cores(h, g);
    } else if constexpr (c.tensor()) {
      add_columns(h, g);
    } else {
      const int worker = threadIdx.x;
      const int slice = c.slices() == 1 ? 0 : worker / c.tiles();
      if (slice >= c.slices()) return;
#pragma unroll
      for (int t = 0; t < c.own_tiles(); ++t) {
        const int tile = c.slices() == 1 ? worker + t * c.threads : worker % c.tiles();
        if (tile < c.tiles()) add_tile(t, tile, slice, h, g);
      }
    }
  }

  /// Calls `f(element, sum)` for all that this thread has of a slice, `slice` told.
  template <class F>
  __device__ void each(const F& f) const {
    const int lane = threadIdx.x % 32;
    const int worker = c.tensor() ? threadIdx.x / 32 : threadIdx.x;
    const int slice = c.slices() == 1 ? 0 : worker / c.tiles();
    if (slice >= c.slices()) return;
#pragma unroll
    for (int t = 0; t < c.own_tiles(); ++t) {
      const int tile = c.slices() == 1 ? worker + t * c.workers() : worker % c.tiles();
      if (tile >= c.tiles()) continue;
      const int p = tile / c.tiles_across() * c.tile(), q = tile % c.tiles_across() * c.tile();
#pragma unroll
      for (int i = 0; i < c.sums() / c.own_tiles(); ++i) {
        int row, col;
        if constexpr (c.tensor()) {
          row = lane / 4 + i / 2 % 2 * 8;
          col = i / 4 * 8 + lane % 4 * 2 + i % 2;
        } else {
          row = i / 4;
          col = i % 4;
        }
        if (p + row < c.p && q + col < c.q)
          f(slice, (p + row) * c.q + q + col, sum[t * (c.sums() / c.own_tiles()) + i]);
      }
    }
  }

 private:
  static constexpr bool quads = c.inner == 1 && c.p % 4 == 0 && c.q % 4 == 0;
  static constexpr int lanes = c.inner % c.vector() == 0 ? c.vector() : 1;

  __device__ void add_tile(int t, int tile, int slice, const T* h, const T* g) {
    const int p = tile / c.tiles_across() * 4, q = tile % c.tiles_across() * 4;
    W* const own = sum + t * 16;
    if constexpr (quads) {
      constexpr int n = sizeof(T) == 8 ? 2 : 4;
#pragma unroll 4
      for (int o = slice; o < c.outer; o += c.slices()) {
        W a[4 / n][n], b[4 / n][n];
#pragma unroll
        for (int i = 0; i < 4 / n; ++i) {
          kron_read<T, n>(h, o * c.p + p + i * n, a[i]);
          kron_read<T, n>(g, o * c.q + q + i * n, b[i]);
        }
#pragma unroll
        for (int i = 0; i < 16; ++i) own[i] += a[i / 4 / n][i / 4 % n] * b[i % 4 / n][i % 4 % n];
      }
    } else {
      constexpr int across = c.inner / lanes;
#pragma unroll 1
      for (int m = slice; m < c.outer * across; m += c.slices()) {
        const int o = m / across, at = m % across * lanes;
        W b[4][lanes];
#pragma unroll
        for (int j = 0; j < 4; ++j)
          kron_read<T, lanes>(g, (o * c.q + (q + j < c.q ? q + j : c.q - 1)) * c.inner + at, b[j]);
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          W a[lanes];
          kron_read<T, lanes>(h, (o * c.p + (p + i < c.p ? p + i : c.p - 1)) * c.inner + at, a);
#pragma unroll
          for (int j = 0; j < 4; ++j)
#pragma unroll
            for (int l = 0; l < lanes; ++l) own[i * 4 + j] += a[l] * b[j][l];
        }
      }
    }
  }

  /// On tensor cores for f32 and f64: the depth is the columns, pairs of an outer and an inner
  /// index.
  __device__ void add_columns(const T* h, const T* g) {
    using M = KronMultiply<T, c.products>;
    constexpr int warps = c.threads / 32, steps = c.outer * c.inner / M::depth;
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, side = lane / 4;
    const int slice = c.slices() == 1 ? 0 : warp / c.tiles();
    if (slice >= c.slices()) return;
#pragma unroll
    for (int t = 0; t < c.own_tiles(); ++t) {
      const int tile = c.slices() == 1 ? warp + t * warps : warp % c.tiles();
      if (tile >= c.tiles()) continue;
      const int p = tile / c.tiles_across() * 16 + side, q = tile % c.tiles_across() * 16 + side;
#pragma unroll 1
      for (int k = slice; k < steps; k += c.slices()) {
        Fragment<T> left, right;
#pragma unroll
        for (int j = 0; j < M::parts; ++j) {
          const int column = k * M::depth + j * 4 + lane % 4;
          const int o = column / c.inner, n = column % c.inner;
#pragma unroll
          for (int half = 0; half < 2; ++half) {
            M::put(left, 2 * j + half, h[kron_place<T>((o * c.p + p + 8 * half) * c.inner + n)]);
            M::put(right, half * M::parts + j,
                   g[kron_place<T>((o * c.q + q + 8 * half) * c.inner + n)]);
          }
        }
        M::add(*reinterpret_cast<T(*)[2][4]>(sum + t * 8), M::hold(left), M::hold(right));
      }
    }
  }

  __device__ void add_on_tensor_cores(const T* h, const T* g) {
    constexpr int warps = c.threads / 32, across = c.inner == 1 ? 1 : c.inner / 16;
    constexpr int steps = c.inner == 1 ? c.outer / 16 : c.outer * across;
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    const int side = lane % 8, half = lane / 8 % 2 * 8, high = lane / 16 * 8;
    const int slice = c.slices() == 1 ? 0 : warp / c.tiles();
    if (slice >= c.slices()) return;
#pragma unroll
    for (int t = 0; t < c.own_tiles(); ++t) {
      const int tile = c.slices() == 1 ? warp + t * warps : warp % c.tiles();
      if (tile >= c.tiles()) continue;
      const int p = tile / c.tiles_across() * 16, q = tile % c.tiles_across() * 16;
#pragma unroll 1
      for (int k = slice; k < steps; k += c.slices()) {
        unsigned left[4], right[4];
        if constexpr (c.inner == 1) {
          kron_matrices<true>(left, h, (16 * k + side + high) * c.p + p + half);
          kron_matrices<true>(right, g, (16 * k + side + half) * c.q + q + high);
        } else {
          const int o = k / across, at = k % across * 16;
          kron_matrices<false>(left, h, (o * c.p + p + side + half) * c.inner + at + high);
          kron_matrices<false>(right, g, (o * c.q + q + side + high) * c.inner + at + half);
        }
#pragma unroll
        for (int n = 0; n < 2; ++n) {
          const unsigned b[2] = {right[2 * n], right[2 * n + 1]};
          float(&own)[4] = *reinterpret_cast<float(*)[4]>(sum + t * 8 + n * 4);
          mma_16816(own, left, b, T{});
        }
      }
    }
  }
};

/// The contractions of all factors from number i on.
template <class T, KronShape shape, int i = 0>
struct KronContractions {
  static constexpr KronContract c = shape.contract(i);
  KronContraction<T, c> own;
  KronContractions<T, shape, i + 1> others;

  /// Sums the slices and writes one number for each element of the factors.
  __device__ void store(unsigned char* memory, wide<T>* partials) const {
    using W = wide<T>;
    if constexpr (c.slices() == 1) {
      own.each([&](int, int e, W sum) { partials[e] = sum; });
    } else {
      W* const scratch = reinterpret_cast<W*>(memory);
      __syncthreads();
      own.each([&](int slice, int e, W sum) { scratch[slice * c.p * c.q + e] = sum; });
      __syncthreads();
      for (int e = threadIdx.x; e < c.p * c.q; e += c.threads) {
        W sum = 0;
        for (int s = 0; s < c.slices(); ++s) sum += scratch[s * c.p * c.q + e];
        partials[e] = sum;
      }
    }
    others.store(memory, partials + c.p * c.q);
  }
};
template <class T, KronShape shape, int i>
requires(i == shape.count) struct KronContractions<T, shape, i> {
  __device__ void store(unsigned char*, wide<T>*) const {}
};

}  // namespace bs::cuda::device
