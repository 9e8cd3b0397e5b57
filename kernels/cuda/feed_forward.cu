#include <bs/kernels/activation.h>
#include <bs/kernels/feed_forward.h>
#include <bs/kernels/linear.h>
#include <bs/kernels/matmul.h>
#include <bs/kernels/cuda/device/tile/activation.cuh>
#include <bs/kernels/cuda/rows.cuh>

#include <algorithm>

namespace bs::cuda {

namespace {

using device::narrow;
using device::Raw;
using device::wide;

constexpr int lanes = 32, lines = 8;  // of a block

/// dx = dy * gelu'(x) of `length` rows, and their sums to row blockIdx.y of `partial`. A thread has
/// N neighbouring columns; the rows are shared by blockDim.y threads, and added up in their order.
template <class T, int N>
__global__ void __launch_bounds__(lanes* lines)
    gelu_sums_kernel(const T* x, const T* dy, T* dx, wide<T>* partial, int64_t rows, int64_t n,
                     int64_t length) {
  using W = wide<T>;
  constexpr int ahead = 4;  // rows on their way
  __shared__ W shared[lines][lanes * N];
  const int64_t column = (int64_t{blockIdx.x} * lanes + threadIdx.x) * N;
  const int64_t begin = blockIdx.y * length;
  const int64_t end = rows - begin < length ? rows : begin + length;
  W sums[N] = {};
  if (column < n) {
    for (int64_t r = begin + threadIdx.y; r < end; r += ahead * lines) {
      Raw<T, N> in[ahead], slope[ahead];
#pragma unroll
      for (int k = 0; k < ahead; ++k) {
        if (r + k * lines >= end) break;
        const int64_t at = (r + k * lines) * n + column;
        in[k] = *reinterpret_cast<const Raw<T, N>*>(x + at);
        slope[k] = *reinterpret_cast<const Raw<T, N>*>(dy + at);
      }
#pragma unroll
      for (int k = 0; k < ahead; ++k) {
        if (r + k * lines >= end) break;
        W a[N], b[N];
        device::widen_pack<T, N>(in[k], a);
        device::widen_pack<T, N>(slope[k], b);
#pragma unroll
        for (int i = 0; i < N; ++i) {
          b[i] = device::GeluTanhBackward<T>{}(a[i], b[i]);
          sums[i] += b[i];
        }
        store_pack(dx + (r + k * lines) * n + column, b);
      }
    }
  }
#pragma unroll
  for (int i = 0; i < N; ++i) shared[threadIdx.y][threadIdx.x * N + i] = sums[i];
  __syncthreads();
  for (unsigned c = threadIdx.y * lanes + threadIdx.x; c < lanes * N; c += lanes * lines) {
    const int64_t at = int64_t{blockIdx.x} * lanes * N + c;
    if (at >= n) break;
    W sum = 0;
#pragma unroll
    for (int line = 0; line < lines; ++line) sum += shared[line][c];
    partial[blockIdx.y * n + at] = sum;
  }
}

/// Adds up the parts: 32 columns a block, every row of threads takes every 32nd part, then the rows
/// are added up in their order.
template <class T>
__global__ void __launch_bounds__(1024)
    join_sums_kernel(const wide<T>* partial, T* out, int64_t parts, int64_t n) {
  using W = wide<T>;
  __shared__ W sums[32][33];
  const int64_t column = int64_t{blockIdx.x} * 32 + threadIdx.x;
  W sum = 0;
  if (column < n) {
#pragma unroll 8
    for (int64_t part = threadIdx.y; part < parts; part += 32) sum += partial[part * n + column];
  }
  sums[threadIdx.y][threadIdx.x] = sum;
  __syncthreads();
  sum = device::warp_reduce(sums[threadIdx.x][threadIdx.y], device::Sum{});
  const int64_t mine = int64_t{blockIdx.x} * 32 + threadIdx.y;
  if (threadIdx.x == 0 && mine < n) out[mine] = narrow<T>(sum);
}

}  // namespace

void linear_gelu(const Tensor& x, const Tensor& weight, const Tensor& bias, const Tensor& before,
                 const Tensor& y, Stream stream) {
  linear(x, weight, bias, before, stream);
  gelu(before, y, Gelu::tanh, stream);
}

void linear_gelu_backward(const Tensor& dy, const Tensor& weight, const Tensor& before,
                          const Tensor& dbefore, const Tensor& dbias, Stream stream) {
  const Tensor dhidden = Tensor::empty_like(before);
  matmul(dy, weight, dhidden, stream);
  const int64_t rows = before.size(0), n = before.size(1);
  const int64_t blocks = int64_t{device_properties(stream.device()).multiprocessors} * 8;
  visit_floating("feed_forward_backward", before.dtype(), [&]<class T>(Type<T>) {
    using W = wide<device_type<T>>;
    const bool aligned = aligned16(before, dhidden, dbefore);
    visit_pack<T>(aligned, n, [&]<int N>(std::integral_constant<int, N>) {
      const int64_t groups = ceil_div(n, lanes * N);
      const int64_t length = std::max<int64_t>(ceil_div(rows, ceil_div(blocks, groups)), 4 * lines);
      const int64_t parts = ceil_div(rows, length);
      const Tensor partial = Tensor::empty({parts, n}, dtype_of<W>, stream.device());
      const dim3 grid(static_cast<unsigned>(groups), static_cast<unsigned>(parts));
      gelu_sums_kernel<device_type<T>, N><<<grid, dim3(lanes, lines), 0, native(stream)>>>(
          pointer<T>(before), pointer<T>(dhidden), pointer<T>(dbefore), pointer<W>(partial), rows,
          n, length);
      join_sums_kernel<<<static_cast<unsigned>(ceil_div(n, 32)), dim3(32, 32), 0, native(stream)>>>(
          static_cast<const W*>(pointer<W>(partial)), pointer<T>(dbias), parts, n);
    });
  });
  BS_CUDA_CHECK_LAUNCH("feed_forward_backward");
}

}  // namespace bs::cuda
