#include <bs/kernels/scan.h>
#include <bs/lib/cuda/grid.h>
#include <bs/kernels/cuda/rows.cuh>
#include <bs/kernels/cuda/scan_threads.cuh>

#include <algorithm>
#include <limits>

namespace bs::cuda {

namespace {

using device::Raw;
using device::wide;

/// Neighbours that a thread holds.
template <class T>
constexpr int each = sizeof(T) == 8   ? 4
                     : sizeof(T) == 4 ? 8
                                      : 16;
template <class T>
constexpr int most_threads = sizeof(T) == 2 ? 512 : 1024;

/// A thread's neighbours of a row, from element threadIdx.x * each<T> on, as they lie in memory;
/// `absent` beyond the row. In 16 bits they take half the registers so.
template <class T, int N>
struct HeldElements {
  using W = wide<T>;
  Raw<T, N> raw[each<T> / N];

  __device__ HeldElements(const T* row, int n, T absent) {
    const int begin = static_cast<int>(threadIdx.x) * each<T>;
    device::Pack<T, N> none;
#pragma unroll
    for (int i = 0; i < N; ++i) none.at[i] = absent;
#pragma unroll
    for (int k = 0; k < each<T> / N; ++k) {
      raw[k] = reinterpret_cast<const Raw<T, N>&>(none);
      if (begin + k * N < n) raw[k] = *reinterpret_cast<const Raw<T, N>*>(row + begin + k * N);
    }
  }
  __device__ void widen(W (&values)[each<T>]) const {
#pragma unroll
    for (int k = 0; k < each<T> / N; ++k) {
      W pack[N];
      device::widen_pack<T, N>(raw[k], pack);
#pragma unroll
      for (int i = 0; i < N; ++i) values[k * N + i] = pack[i];
    }
  }
};

/// The running products of the row's factors.
template <class W, int n>
__device__ void products(const W (&factors)[n], W (&y)[n]) {
#pragma unroll
  for (int i = 0; i < n; ++i) y[i] = i == 0 ? factors[0] : y[i - 1] * factors[i];
  const W before = scan_threads<false, ScanProduct>(y[n - 1]);
#pragma unroll
  for (W& product : y) product *= before;
}

/// Quotients, in 16 bits to 2 ulp of float where no divisor is extreme. By zero they are anything.
template <class T, class W, int n>
__device__ void divide(W (&a)[n], const W (&b)[n]) {
  if constexpr (sizeof(T) == 2) {
    bool usual = true;
#pragma unroll
    for (int i = 0; i < n; ++i)
      usual = usual && ((fabsf(b[i]) > 0x1p-126F && fabsf(b[i]) < 0x1p126F) || b[i] == 0);
    if (usual) {
#pragma unroll
      for (int i = 0; i < n; ++i) a[i] = __fdividef(a[i], b[i]);
      return;
    }
  }
#pragma unroll
  for (int i = 0; i < n; ++i) a[i] = a[i] / b[i];
}

/// At a row's first zero the quotient is the product of the other factors, and behind it 0.
template <class T, class W, int n, class Term>
__device__ void put_zeros(W (&factors)[n], W (&y)[n], W (&dx)[n], const Term& term) {
  constexpr int none = std::numeric_limits<int>::max();
  const int begin = static_cast<int>(threadIdx.x) * n;
  int zero = none;
#pragma unroll
  for (int i = n - 1; i >= 0; --i) zero = factors[i] == 0 ? begin + i : zero;
  zero = -row_reduce(-zero, device::Max{}, -none);  // the row's first
#pragma unroll
  for (int i = 0; i < n; ++i) factors[i] = begin + i == zero ? W(1) : factors[i];
  products(factors, y);
  W at_zero = 0;
#pragma unroll
  for (int i = 0; i < n; ++i) at_zero += begin + i < zero ? W(0) : term(i);
  at_zero = row_sum(at_zero);
#pragma unroll
  for (int i = 0; i < n; ++i) dx[i] = begin + i < zero ? dx[i] : begin + i == zero ? at_zero : W(0);
}

/// dx of one row, which its threads hold: a row is a warp's, or a block's.
template <class T, int N>
__global__ void __launch_bounds__(most_threads<T>, sizeof(T) == 2 && N > 1 ? 2 : 1)
    cumprod_backward_kernel(const T* x, const T* dy, T* dx, int64_t rows, int n) {
  using W = wide<T>;
  constexpr int count = each<T>;
  // Rows that share a warp with others take part in its scans even where they are none.
  const int64_t row = min(int64_t{blockIdx.x} * blockDim.y + threadIdx.y, rows - 1);
  const int begin = static_cast<int>(threadIdx.x) * count;
  const HeldElements<T, N> held(x + row * n, n, device::narrow<T>(W(1)));
  const HeldElements<T, N> held_slopes(dy + row * n, n, device::narrow<T>(W(0)));
  W factors[count], slopes[count], y[count], quotients[count];
  held.widen(factors);
  bool is_zero = false;
#pragma unroll
  for (int i = 0; i < count; ++i) is_zero |= factors[i] == 0;
  const bool has_zeros = __syncthreads_or(is_zero) != 0;
  products(factors, y);
  held_slopes.widen(slopes);
  // Nothing beyond the row, where the product may be infinite. Packs are within it, or beyond.
  const auto term = [&](int i) { return begin + i / N * N < n ? slopes[i] * y[i] : W(0); };
#pragma unroll
  for (int i = count - 1; i >= 0; --i)
    quotients[i] = term(i) + (i == count - 1 ? W(0) : quotients[i + 1]);
  const W behind = scan_threads<true, ScanSum>(quotients[0]);
#pragma unroll
  for (int i = 0; i < count; ++i) quotients[i] += behind;
  divide<T>(quotients, factors);
  if (has_zeros) put_zeros<T>(factors, y, quotients, term);
#pragma unroll
  for (int k = 0; k < count; k += N) {
    W pack[N];
#pragma unroll
    for (int i = 0; i < N; ++i) pack[i] = quotients[k + i];
    if (begin + k < n) store_pack<N>(dx + row * n + begin + k, pack);
  }
}

}  // namespace

void cumprod_backward(const Tensor& x, const Tensor& dy, const Tensor& dx, Stream stream) {
  const int64_t rows = x.size(0), n = x.size(1);
  visit_floating("cumprod_backward", x.dtype(), [&]<class T>(Type<T>) {
    const dim3 block = row_of_threads(n, each<device_type<T>>);
    const unsigned grid = grid_of("cumprod_backward", ceil_div(rows, block.y));
    visit_pack<T>(aligned16(x, dy, dx), n, [&]<int N>(std::integral_constant<int, N>) {
      cumprod_backward_kernel<device_type<T>, N><<<grid, block, 0, native(stream)>>>(
          pointer<T>(x), pointer<T>(dy), pointer<T>(dx), rows, static_cast<int>(n));
    });
  });
  BS_CUDA_CHECK_LAUNCH("cumprod_backward");
}

}  // namespace bs::cuda
