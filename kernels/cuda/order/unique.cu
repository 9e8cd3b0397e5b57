#include <bs/kernels/cuda/order/sort_pairs.h>
#include <bs/kernels/nonzero.h>
#include <bs/kernels/unique.h>
#include <bs/lib/cuda/grid.h>
#include <bs/lib/cuda/launch.h>
#include <bs/kernels/cuda/order/sort_key.cuh>

#include <limits>

namespace bs::cuda {

namespace {

constexpr int warp = 32, warps = 8, threads = warp * warps;
constexpr int stretch = nonzero_part / warps;  ///< of a warp
constexpr unsigned all_lanes = 0xffffffffU;

/// The keys' values are those of x, which need not be looked up but where a key is of several.
template <class T>
__global__ void values_kernel(const ShortKey<T>* keys, const uint32_t* order, const T* x, T* sorted,
                              bool* first, int64_t n) {
  const int64_t step = int64_t{gridDim.x} * blockDim.x;
  constexpr auto nan = static_cast<ShortKey<T>>(~ShortKey<T>{0});  // no other value has it
  for (int64_t k = int64_t{blockIdx.x} * blockDim.x + threadIdx.x; k < n; k += step) {
    const ShortKey<T> key = keys[k];
    first[k] = k == 0 || key != keys[k - 1] || (!std::is_integral_v<T> && key == nan);
    sorted[k] = is_shared<T>(key) ? x[order[k]] : value_of<T>(key);
  }
}

/// Elements in order, and what becomes of them.
template <class T>
struct Groups {
  const T* sorted;
  const uint32_t* order;
  const uint8_t* first;
  const int64_t* before;
  T* values;
  int64_t *begins, *inverse;
  int64_t n;

  /// Groups that begin in a warp's stretch, in each lane.
  __device__ unsigned count(int64_t begin) const {
    constexpr int bytes = 16, turns = stretch / (warp * bytes);
    unsigned sum = 0;
#pragma unroll
    for (int turn = 0; turn < turns; ++turn) {
      const int64_t at = begin + (turn * warp + threadIdx.x % warp) * bytes;
      if (at + bytes <= n) {
        const uint4 four = *reinterpret_cast<const uint4*>(first + at);
        sum += __popc(four.x) + __popc(four.y) + __popc(four.z) + __popc(four.w);
      } else {
        for (int64_t k = at; k < n; ++k) sum += first[k];
      }
    }
    return __reduce_add_sync(all_lanes, sum);
  }
};

/// A block a part of the order, a warp a stretch of it.
template <class T>
__global__ void __launch_bounds__(threads) number_kernel(Groups<T> of) {
  constexpr int ahead = 4;
  __shared__ unsigned counts[warps];
  const unsigned lane = threadIdx.x % warp, number = threadIdx.x / warp;
  const int64_t begin = int64_t{blockIdx.x} * nonzero_part + number * stretch;
  const unsigned own = of.count(begin);
  if (lane == 0) counts[number] = own;
  __syncthreads();
  int64_t in_front = of.before[blockIdx.x];
  for (unsigned w = 0; w < number; ++w) in_front += counts[w];
#pragma unroll 1
  for (int64_t from = begin + lane; from < begin + stretch; from += ahead * warp) {
    uint32_t place[ahead];
    bool is_first[ahead];
#pragma unroll
    for (int u = 0; u < ahead; ++u) {
      const int64_t k = from + u * warp;
      is_first[u] = k < of.n && of.first[k] != 0;
      if (k < of.n) place[u] = of.order[k];
    }
#pragma unroll
    for (int u = 0; u < ahead; ++u) {
      const int64_t k = from + u * warp;
      const unsigned begun = __ballot_sync(all_lanes, is_first[u]);
      const int64_t group = in_front + __popc(begun & (all_lanes >> (warp - 1 - lane))) - 1;
      in_front += __popc(begun);
      if (k < of.n) of.inverse[place[u]] = group;
      if (!is_first[u]) continue;
      of.begins[group] = k;
      of.values[group] = of.sorted[k];
    }
  }
}

}  // namespace

void order_groups(const Tensor& x, const Tensor& order, const Tensor& sorted, const Tensor& first,
                  Stream stream) {
  const int64_t n = x.numel();
  BS_CHECK(n < std::numeric_limits<int32_t>::max(), "unique: {} elements are too many", n);
  const KeyedPositions pairs = sort_all(x, order, false, stream);
  visit_any(x.dtype(), [&]<class T>(Type<T>) {
    using D = device_type<T>;
    values_kernel<D><<<grid_size(n, threads, x.device()), threads, 0, native(stream)>>>(
        static_cast<const ShortKey<D>*>(pairs.keys.data()),
        static_cast<const uint32_t*>(order.data()), pointer<T>(x), pointer<T>(sorted),
        first.data<bool>(), n);
  });
  BS_CUDA_CHECK_LAUNCH("unique");
}

void number_groups(const Tensor& sorted, const Tensor& order, const Tensor& first,
                   const Tensor& before, const Tensor& values, const Tensor& begins,
                   const Tensor& inverse, Stream stream) {
  const int64_t n = sorted.numel();
  const unsigned parts = grid_of("unique", ceil_div(n, nonzero_part));
  visit_any(sorted.dtype(), [&]<class T>(Type<T>) {
    const Groups<device_type<T>> groups{pointer<T>(sorted),
                                        static_cast<const uint32_t*>(order.data()),
                                        static_cast<const uint8_t*>(first.data()),
                                        before.data<int64_t>(),
                                        pointer<T>(values),
                                        begins.data<int64_t>(),
                                        inverse.data<int64_t>(),
                                        n};
    number_kernel<<<parts, threads, 0, native(stream)>>>(groups);
  });
  BS_CUDA_CHECK_LAUNCH("unique");
}

}  // namespace bs::cuda
