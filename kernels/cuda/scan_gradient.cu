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

template <class W>
constexpr int each = sizeof(W) == 8 ? 4 : 8;  ///< neighbours that a thread holds
constexpr int most_threads = 1024;

/// A thread's neighbours of a row, from element threadIdx.x * each<W> on; `absent` beyond the row.
template <int N, class T, class W = wide<T>>
__device__ void load(const T* row, int64_t n, W absent, W (&values)[each<W>]) {
  const int64_t begin = int64_t{threadIdx.x} * each<W>;
#pragma unroll
  for (int k = 0; k < each<W>; k += N) {
    W pack[N];
#pragma unroll
    for (int i = 0; i < N; ++i) pack[i] = absent;
    if (begin + k < n)
      device::widen_pack<T, N>(*reinterpret_cast<const Raw<T, N>*>(row + begin + k), pack);
#pragma unroll
    for (int i = 0; i < N; ++i) values[k + i] = pack[i];
  }
}

/// The running products of the row's factors.
template <class W>
__device__ void products(const W (&factors)[each<W>], W (&y)[each<W>]) {
#pragma unroll
  for (int i = 0; i < each<W>; ++i) y[i] = i == 0 ? factors[0] : y[i - 1] * factors[i];
  const W before = scan_threads<false, ScanProduct>(y[each<W> - 1]);
#pragma unroll
  for (W& product : y) product *= before;
}

/// a / b, in 16 bits to 2 ulp of float.
template <class T, class W = wide<T>>
__device__ W divided(W a, W b) {
  if constexpr (sizeof(T) == 2) {
    const float size = fabsf(b);
    if (size > 0x1p-126F && size < 0x1p126F) return __fdividef(a, b);
  }
  return a / b;
}

/// dx of one row, which its threads hold: a row is a warp's, or a block's.
template <class T, int N>
__global__ void __launch_bounds__(most_threads)
    cumprod_backward_kernel(const T* x, const T* dy, T* dx, int64_t rows, int64_t n) {
  using W = wide<T>;
  // Rows that share a warp with others take part in its scans even where they are none.
  const int64_t row = min(int64_t{blockIdx.x} * blockDim.y + threadIdx.y, rows - 1);
  const int begin = static_cast<int>(threadIdx.x) * each<W>;
  W factors[each<W>], slopes[each<W>], y[each<W>], dx_before[each<W>];
  load<N>(x + row * n, n, W(1), factors);
  load<N>(dy + row * n, n, W(0), slopes);
  bool is_zero = false;
#pragma unroll
  for (int i = 0; i < each<W>; ++i) is_zero |= factors[i] == 0;
  const bool has_zeros = __syncthreads_or(is_zero) != 0;
  products(factors, y);
  // Nothing beyond the row, where the product may be infinite.
  const auto term = [&](int i) { return begin + i < n ? slopes[i] * y[i] : W(0); };
#pragma unroll
  for (int i = each<W> - 1; i >= 0; --i)
    dx_before[i] = term(i) + (i == each<W> - 1 ? W(0) : dx_before[i + 1]);
  const W behind = scan_threads<true, ScanSum>(dx_before[0]);
#pragma unroll
  for (int i = 0; i < each<W>; ++i) dx_before[i] = divided<T>(dx_before[i] + behind, factors[i]);
  // At a row's first zero the quotient is the product of the other factors.
  if (has_zeros) {
    constexpr int none = std::numeric_limits<int>::max();
    int zero = none;
#pragma unroll
    for (int i = each<W> - 1; i >= 0; --i) zero = factors[i] == 0 ? begin + i : zero;
    zero = -row_reduce(-zero, device::Max{}, -none);  // the row's first
    W at_zero = 0;
#pragma unroll
    for (int i = 0; i < each<W>; ++i) factors[i] = begin + i == zero ? W(1) : factors[i];
    products(factors, y);
#pragma unroll
    for (int i = 0; i < each<W>; ++i) at_zero += begin + i < zero ? W(0) : term(i);
    at_zero = row_sum(at_zero);
#pragma unroll
    for (int i = 0; i < each<W>; ++i)
      dx_before[i] = begin + i < zero ? dx_before[i] : begin + i == zero ? at_zero : W(0);
  }
#pragma unroll
  for (int k = 0; k < each<W>; k += N) {
    W pack[N];
#pragma unroll
    for (int i = 0; i < N; ++i) pack[i] = dx_before[k + i];
    if (begin + k < n) store_pack<N>(dx + row * n + begin + k, pack);
  }
}

}  // namespace

void cumprod_backward(const Tensor& x, const Tensor& dy, const Tensor& dx, Stream stream) {
  const int64_t rows = x.size(0), n = x.size(1);
  visit_floating("cumprod_backward", x.dtype(), [&]<class T>(Type<T>) {
    const dim3 block = row_of_threads(n, each<wide<device_type<T>>>);
    const unsigned grid = grid_of("cumprod_backward", ceil_div(rows, block.y));
    visit_pack<T>(aligned16(x, dy, dx), n, [&]<int N>(std::integral_constant<int, N>) {
      cumprod_backward_kernel<device_type<T>, N><<<grid, block, 0, native(stream)>>>(
          pointer<T>(x), pointer<T>(dy), pointer<T>(dx), rows, n);
    });
  });
  BS_CUDA_CHECK_LAUNCH("cumprod_backward");
}

}  // namespace bs::cuda
