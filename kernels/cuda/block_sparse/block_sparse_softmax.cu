#include <bs/kernels/block_sparse_softmax.h>
#include <bs/lib/cuda/grid.h>
#include <bs/kernels/cuda/block_sparse/block_sparse_rows.cuh>

#include <algorithm>
#include <cmath>
#include <limits>

namespace bs::cuda {

namespace {

using namespace block_rows;
using device::exp2_of;

constexpr int warps = 4;  ///< of a block

/// The share of this warp.
__device__ uint32_t own_share() { return blockIdx.x * warps + threadIdx.y; }

/// Powers of two of scores times log2 e, the factor, beside the largest of a row. The factor is
/// positive, so the largest score is that of the largest element. It is rounded before it is
/// subtracted, which changes nothing, for it divides out.
template <class T, int N>
struct Powers {
  using W = wide<T>;
  W factor, shift;

  /// What is subtracted from scores of which `top` is the largest so far.
  static __device__ W shift_of(W top) { return top == -INFINITY ? W(0) : top; }
  __device__ void get(const Raw<T, N>& raw, W (&v)[N]) const {
    device::widen_pack<T, N>(raw, v);
#pragma unroll
    for (int j = 0; j < N; ++j) v[j] = exp2_of(fma(v[j], factor, -shift));
  }
  __device__ W sum(const Raw<T, N>& raw) const {
    W v[N], sum = 0;
    get(raw, v);
#pragma unroll
    for (int j = 0; j < N; ++j) sum += v[j];
    return sum;
  }
  __device__ void get_shares(const Raw<T, N>& raw, W share, W (&v)[N]) const {
    get(raw, v);
#pragma unroll
    for (int j = 0; j < N; ++j) v[j] *= share;
  }
};

/// Blocks on a multiprocessor: as many as leave what lanes keep in registers.
template <class T, int N, int held>
constexpr int resident = sizeof(wide<T>) > 4  ? 4
                         : held > 8           ? 3
                         : N == 1 || held > 4 ? 5
                                              : 8;

/// A row that its lanes keep is read once. Of a longer one a lane's sum is beside the largest score
/// that it has seen so far, and the row is read again.
template <class T, int N, int held, bool masked>
__global__ void __launch_bounds__(warp* warps, resident<T, N, held>)
    softmax_kernel(const T* x, T* y, const __grid_constant__ Shares shares, wide<T> factor) {
  using W = wide<T>;
  for_each_row<T, N, held>(shares, own_share(), [&](const Row<T, N, held>& row) {
    const auto larger = [](W a, W b) { return fmax(a, b); };
    typename Row<T, N, held>::Packs raw;
    const auto load = [&](int chunk) {
      if constexpr (masked) {
        row.load_seen(x, chunk, raw);
      } else {
        row.load(x, chunk, raw);
      }
    };
    Powers<T, N> powers{factor, 0};
    const int chunks = row.chunks();
    W top = -INFINITY, sum = 0;
    for (int c = 0; c < chunks; ++c) {
      load(c);
      const W before = top;
      top = fmax(top, largest<T, N>(raw) * factor);
      if (chunks == 1) top = row.reduce(top, larger);
      powers.shift = Powers<T, N>::shift_of(top);
      sum *= exp2_of(before - powers.shift);
      row.for_each(c, [&](int k, int) { sum += powers.sum(raw[k]); });
    }
    if (chunks > 1) {
      powers.shift = Powers<T, N>::shift_of(row.reduce(top, larger));
      sum *= exp2_of(top - powers.shift);
    }
    sum = row.reduce(sum, device::Sum{});
    const W share = sum == 0 ? W(0) : 1 / sum;
    for (int c = 0; c < chunks; ++c) {
      if (chunks > 1) load(c);
      row.for_each(c, [&](int k, int p) {
        W v[N];
        powers.get_shares(raw[k], share, v);
        row.store(y, p, v);
      });
    }
  });
}

template <class T, int N, int held>
__global__ void __launch_bounds__(warp* warps)
    softmax_backward_kernel(const T* y, const T* dy, T* dx, const __grid_constant__ Shares shares,
                            wide<T> scale) {
  using W = wide<T>;
  for_each_row<T, N, held>(shares, own_share(), [&](const Row<T, N, held>& row) {
    typename Row<T, N, held>::Packs result, gradient;
    const auto load = [&](int chunk) {
      row.load(y, chunk, result);
      row.load(dy, chunk, gradient);
    };
    // Calls f(pack number, y, dy).
    const auto for_each = [&](int chunk, auto&& f) {
      row.for_each(chunk, [&](int k, int p) {
        W a[N], b[N];
        device::widen_pack<T, N>(result[k], a);
        device::widen_pack<T, N>(gradient[k], b);
        f(p, a, b);
      });
    };
    const int chunks = row.chunks();
    W dot = 0;
    for (int c = 0; c < chunks; ++c) {
      load(c);
      for_each(c, [&](int, const W(&a)[N], const W(&b)[N]) {
#pragma unroll
        for (int j = 0; j < N; ++j) dot += a[j] * b[j];
      });
    }
    dot = scale * row.reduce(dot, device::Sum{});
    for (int c = 0; c < chunks; ++c) {
      if (chunks > 1) load(c);
      for_each(c, [&](int p, W(&a)[N], const W(&b)[N]) {
#pragma unroll
        for (int j = 0; j < N; ++j) a[j] *= fma(scale, b[j], -dot);
        row.store(dx, p, a);
      });
    }
  });
}

dim3 grid_of(const Shares& shares) {
  return dim3(cuda::grid_of("block_sparse_softmax", ceil_div(shares.count, warps)));
}

}  // namespace

void block_sparse_softmax(const Tensor& x, const Layout& layout, const Tensor& y,
                          const BlockSparseSoftmaxOptions& options, Stream stream) {
  const Tensor& mask = options.key_padding_mask;
  const bool masked = options.causal || mask.defined();
  visit_floating("block_sparse_softmax", x.dtype(), [&]<class T>(Type<T>) {
    using D = device_type<T>;
    visit_pack<T>(
        aligned16(x, y, mask), layout.block(), [&]<int N>(std::integral_constant<int, N>) {
          Shares shares = shares_of(layout, x, N, 4);
          shares.causal = options.causal;
          if (mask.defined()) {
            shares.keep = mask.data<bool>();
            const int64_t matrices = x.numel() / (layout.nnz() * layout.block() * layout.block());
            shares.matrices_a_mask = Divisor(matrices / mask.size(0));
          }
          using W = wide<D>;
          const W factor = std::max(static_cast<W>(options.scale * 1.4426950408889634),
                                    std::numeric_limits<W>::denorm_min());
          visit_held<N, 16>(layout, shares, [&]<int held>(std::integral_constant<int, held>) {
            // Operands that are not aligned are rare: one kernel serves them with masks and
            // without.
            constexpr bool one = N == 1;
            const auto kernel =
                masked || one ? softmax_kernel<D, N, held, true> : softmax_kernel<D, N, held, one>;
            kernel<<<grid_of(shares), dim3(warp, warps), 0, native(stream)>>>(
                pointer<T>(x), pointer<T>(y), shares, factor);
          });
        });
  });
  BS_CUDA_CHECK_LAUNCH("block_sparse_softmax");
}

void block_sparse_softmax_backward(const Tensor& y, const Tensor& dy, const Layout& layout,
                                   const Tensor& dx, double scale, Stream stream) {
  visit_floating("block_sparse_softmax_backward", y.dtype(), [&]<class T>(Type<T>) {
    using D = device_type<T>;
    visit_pack<T>(aligned16(y, dy, dx), layout.block(), [&]<int N>(std::integral_constant<int, N>) {
      const Shares shares = shares_of(layout, y, N, 4);
      visit_held<N, 8>(layout, shares, [&]<int held>(std::integral_constant<int, held>) {
        softmax_backward_kernel<D, N, held>
            <<<grid_of(shares), dim3(warp, warps), 0, native(stream)>>>(
                pointer<T>(y), pointer<T>(dy), pointer<T>(dx), shares, static_cast<wide<D>>(scale));
      });
    });
  });
  BS_CUDA_CHECK_LAUNCH("block_sparse_softmax_backward");
}

}  // namespace bs::cuda
