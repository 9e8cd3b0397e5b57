#include <bs/kernels/binary.h>
#include <bs/kernels/fill.h>
#include <bs/kernels/gather.h>
#include <bs/kernels/index_select.h>
#include <bs/lib/cuda/launch.h>
#include <bs/kernels/cuda/integers.cuh>

#include <cstring>
#include <limits>

namespace bs::cuda {

namespace {

constexpr int threads = 256;

/// An index [outer, m, inner] of any strides beside an axis of n.
struct Places {
  Integers index;
  int64_t outer_stride, stride, inner_stride;
  int64_t n, m, inner;

  /// The place in [outer, n, inner] that element e of [outer, m, inner] names; -1: outside.
  __device__ int64_t operator()(int64_t e) const {
    const int64_t i = e % inner, r = e / inner, k = r % m, o = r / m;
    const int64_t at = index[o * outer_stride + k * stride + i * inner_stride];
    return at >= 0 && at < n ? (o * n + at) * inner + i : -1;
  }
};

Places places(const Tensor& index, int64_t n) {
  const Strides& s = index.strides();
  return {integers(index), s[0], s[1], s[2], n, index.size(1), index.size(2)};
}

template <class U>
__global__ void gather_kernel(const U* x, Places places, U* y, U absent, int64_t count) {
  const int64_t step = int64_t{gridDim.x} * blockDim.x;
  for (int64_t e = int64_t{blockIdx.x} * blockDim.x + threadIdx.x; e < count; e += step) {
    const int64_t at = places(e);
    y[e] = at < 0 ? absent : x[at];
  }
}

/// winner[place] = the last k that names it.
__global__ void win_kernel(Places places, int* winner, int64_t count) {
  const int64_t step = int64_t{gridDim.x} * blockDim.x;
  for (int64_t e = int64_t{blockIdx.x} * blockDim.x + threadIdx.x; e < count; e += step) {
    const int64_t at = places(e);
    if (at >= 0) atomicMax(winner + at, static_cast<int>(e / places.inner % places.m));
  }
}

template <class U>
__global__ void write_kernel(const U* source, const int* winner, U* y, int64_t n, int64_t m,
                             int64_t inner, int64_t count) {
  const int64_t step = int64_t{gridDim.x} * blockDim.x;
  for (int64_t at = int64_t{blockIdx.x} * blockDim.x + threadIdx.x; at < count; at += step)
    if (winner[at] >= 0) y[at] = source[(at / inner / n * m + winner[at]) * inner + at % inner];
}

template <class U>
__global__ void add_integers_kernel(const U* source, Places places, U* y, int64_t count) {
  const int64_t step = int64_t{gridDim.x} * blockDim.x;
  for (int64_t e = int64_t{blockIdx.x} * blockDim.x + threadIdx.x; e < count; e += step) {
    const int64_t at = places(e);
    if (at >= 0) atomicAdd(y + at, source[e]);
  }
}

__global__ void flat_kernel(Places places, int64_t* flat, int64_t count) {
  const int64_t step = int64_t{gridDim.x} * blockDim.x;
  for (int64_t e = int64_t{blockIdx.x} * blockDim.x + threadIdx.x; e < count; e += step)
    flat[e] = places(e);
}

/// The bits of what stands for a missing element: NaN, 0 for integers.
uint64_t absent_bits(DType dtype) {
  uint64_t bits = 0;
  const auto put = [&](auto value) { std::memcpy(&bits, &value, sizeof value); };
  constexpr float nan = std::numeric_limits<float>::quiet_NaN();
  if (dtype == f16) put(half(nan));
  if (dtype == bf16) put(bfloat16(nan));
  if (dtype == f32) put(nan);
  if (dtype == f64) put(static_cast<double>(nan));
  return bits;
}

/// Calls f(Type<U>{}) with an unsigned type of the dtype's size: a copy looks at no values.
template <class F>
void visit_bits(DType dtype, F&& f) {
  switch (size_of(dtype)) {
    case 1:
      return f(Type<uint8_t>{});
    case 2:
      return f(Type<uint16_t>{});
    case 4:
      return f(Type<uint32_t>{});
    default:
      return f(Type<uint64_t>{});
  }
}

}  // namespace

void gather(const Tensor& x, const Tensor& index, const Tensor& y, Stream stream) {
  const int64_t count = y.numel();
  visit_bits(x.dtype(), [&]<class U>(Type<U>) {
    gather_kernel<<<grid_size(count, threads, x.device()), threads, 0, native(stream)>>>(
        static_cast<const U*>(x.data()), places(index, x.size(1)), static_cast<U*>(y.data()),
        static_cast<U>(absent_bits(x.dtype())), count);
  });
  BS_CUDA_CHECK_LAUNCH("gather");
}

void scatter(const Tensor& index, const Tensor& source, const Tensor& y, Stream stream) {
  BS_CHECK(source.size(1) < std::numeric_limits<int>::max(), "scatter: {} indices are too many",
           source.size(1));
  const int64_t count = source.numel(), all = y.numel();
  const Tensor winner = Tensor::empty({all}, i32, y.device());
  fill(winner, -1, stream);
  win_kernel<<<grid_size(count, threads, y.device()), threads, 0, native(stream)>>>(
      places(index, y.size(1)), winner.data<int32_t>(), count);
  visit_bits(y.dtype(), [&]<class U>(Type<U>) {
    write_kernel<<<grid_size(all, threads, y.device()), threads, 0, native(stream)>>>(
        static_cast<const U*>(source.data()), winner.data<int32_t>(), static_cast<U*>(y.data()),
        y.size(1), source.size(1), y.size(2), all);
  });
  BS_CUDA_CHECK_LAUNCH("scatter");
}

void scatter_add(const Tensor& index, const Tensor& source, const Tensor& y, Stream stream) {
  const int64_t count = source.numel();
  const unsigned blocks = grid_size(count, threads, y.device());
  const Places at = places(index, y.size(1));
  // Integers come to the same sum in any order. Floats are added in the order of their positions.
  if (y.dtype() == i64) {
    using U = unsigned long long;
    add_integers_kernel<<<blocks, threads, 0, native(stream)>>>(
        static_cast<const U*>(source.data()), at, static_cast<U*>(y.data()), count);
  } else if (y.dtype() == i32) {
    add_integers_kernel<<<blocks, threads, 0, native(stream)>>>(
        static_cast<const unsigned*>(source.data()), at, static_cast<unsigned*>(y.data()), count);
  } else {
    const Tensor flat = Tensor::empty({count}, i64, y.device());
    flat_kernel<<<blocks, threads, 0, native(stream)>>>(at, flat.data<int64_t>(), count);
    const Tensor sums = Tensor::empty({1, y.numel(), 1}, y.dtype(), y.device());
    index_select_backward(source.view({1, count, 1}), flat, sums, -1, stream);
    const Tensor one = y.view({y.numel()});
    add(one, sums.view({y.numel()}), one, stream);
  }
  BS_CUDA_CHECK_LAUNCH("scatter_add");
}

}  // namespace bs::cuda
