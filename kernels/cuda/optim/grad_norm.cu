#include <bs/kernels/grad_norm.h>
#include <bs/kernels/cuda/device/tile/arithmetic.cuh>
#include <bs/kernels/cuda/device/tile/pack.cuh>
#include <bs/kernels/cuda/device/tile/reduce.cuh>
#include <bs/kernels/cuda/early_launch.cuh>
#include <bs/kernels/cuda/optim/tensor_table.cuh>

namespace bs::cuda {

namespace {

using device::narrow;
using device::wide;
using device::widen;

constexpr int threads = 256;

/// partial[chunk] = sum of the squares of a chunk's elements.
template <class T>
__global__ void __launch_bounds__(threads)
    squares_kernel(const __grid_constant__ TensorTable<1> table, double* partial) {
  constexpr int N = device::pack_size<T>;
  const Chunk c = table.chunk(blockIdx.x);
  const T* x = table.at<T>(0, c.tensor);
  double sum = 0;
  const auto add = [&](T value) {
    const auto v = static_cast<double>(widen(value));
    sum += v * v;
  };
  int64_t at = c.begin;
  if (aligned<N>(x)) {
    at += (c.end - c.begin) / N * N;
    constexpr int ahead = 4;  // loads on their way
    for (int64_t i = c.begin + N * threadIdx.x; i < at; i += N * threads * ahead) {
      device::Raw<T, N> raw[ahead];
#pragma unroll
      for (int u = 0; u < ahead; ++u)
        if (i + u * N * threads < at)
          raw[u] = device::load_once(
              reinterpret_cast<const device::Raw<T, N>*>(x + i + u * N * threads));
#pragma unroll
      for (int u = 0; u < ahead; ++u) {
        if (i + u * N * threads >= at) break;
        const auto pack = reinterpret_cast<const device::Pack<T, N>&>(raw[u]);
#pragma unroll
        for (int k = 0; k < N; ++k) add(pack.at[k]);
      }
    }
  }
  for (int64_t i = at + threadIdx.x; i < c.end; i += threads) add(x[i]);
  let_next_launch_begin();
  sum = device::block_reduce(sum, device::Sum{}, 0.0);
  if (threadIdx.x == 0) partial[blockIdx.x] = sum;
}

__global__ void root_kernel(const double* partial, int64_t count, double* norm) {
  double sum = 0;
  wait_for_previous_launch();
#pragma unroll 8
  for (int64_t i = threadIdx.x; i < count; i += blockDim.x) sum += partial[i];
  sum = device::block_reduce(sum, device::Sum{}, 0.0);
  if (threadIdx.x == 0) *norm = sqrt(sum);
}

template <class T>
__global__ void __launch_bounds__(threads)
    clip_kernel(const __grid_constant__ TensorTable<1> table, ClipView clip_by) {
  constexpr int N = device::pack_size<T>;
  const auto factor = static_cast<wide<T>>(clip_by.factor());
  if (factor == 1) return;
  const Chunk c = table.chunk(blockIdx.x);
  T* x = table.at<T>(0, c.tensor);
  int64_t at = c.begin;
  if (aligned<N>(x)) {
    at += (c.end - c.begin) / N * N;
    for (int64_t i = c.begin + N * threadIdx.x; i < at; i += N * threads) {
      auto* pack = reinterpret_cast<device::Pack<T, N>*>(x + i);
      auto values = *pack;
#pragma unroll
      for (int k = 0; k < N; ++k) values.at[k] = narrow<T>(widen(values.at[k]) * factor);
      *pack = values;
    }
  }
  for (int64_t i = at + threadIdx.x; i < c.end; i += threads)
    x[i] = narrow<T>(widen(x[i]) * factor);
}

/// Calls launch(Type<T>, table) for tables of the gradients of each dtype.
template <class Launch>
void for_each_dtype(std::span<const Tensor> gradients, Launch&& launch) {
  for (DType dtype : floating_dtypes)
    visit_floating("grad_norm", dtype, [&]<class T>(Type<T> type) {
      for_each_table<1>(
          gradients, [=](const Tensor& g) { return g.dtype() == dtype; },
          [](TensorTable<1>& table, const Tensor& g) { table.add({g.data()}, g.numel()); },
          [&](const TensorTable<1>& table) { launch(type, table); });
    });
}

}  // namespace

void grad_norm(std::span<const Tensor> gradients, const Tensor& norm, Stream stream) {
  int64_t chunks = 0;
  for (const Tensor& g : gradients) chunks += ceil_div(g.numel(), TensorTable<1>::chunk_size);
  const Tensor partial = Tensor::empty({chunks}, f64, norm.device());
  double* next = pointer<double>(partial);
  for_each_dtype(gradients, [&]<class T>(Type<T>, const TensorTable<1>& table) {
    squares_kernel<device_type<T>><<<table.chunks(), threads, 0, native(stream)>>>(table, next);
    BS_CUDA_CHECK_LAUNCH("grad_norm");
    next += table.chunks();
  });
  launch_early(root_kernel, 1, 1024, 0, stream, pointer<double>(partial), chunks,
               pointer<double>(norm));
  BS_CUDA_CHECK_LAUNCH("grad_norm");
}

void clip_gradients(std::span<const Tensor> gradients, const GradientClip& clip, Stream stream) {
  const ClipView clip_by = {static_cast<const double*>(address_of(clip.norm)), clip.max_norm,
                            clip.skip_nonfinite, 1 / clip.scale};
  for_each_dtype(gradients, [&]<class T>(Type<T>, const TensorTable<1>& table) {
    clip_kernel<device_type<T>><<<table.chunks(), threads, 0, native(stream)>>>(table, clip_by);
    BS_CUDA_CHECK_LAUNCH("clip_gradients");
  });
}

}  // namespace bs::cuda
