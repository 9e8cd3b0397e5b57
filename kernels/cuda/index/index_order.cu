#include <bs/kernels/cuda/index/index_order.h>
#include <bs/kernels/cuda/order/sort_pairs.h>
#include <bs/lib/cuda/grid.h>
#include <bs/lib/cuda/launch.h>
#include <bs/kernels/cuda/device/tile/reduce.cuh>
#include <bs/kernels/cuda/scan_threads.cuh>

#include <algorithm>
#include <bit>

namespace bs::cuda {

// Few indices take one launch: each block of threads reads all of them, and orders those of a
// range. Its warps count those in their stretches, and then know where each of them goes. Many take
// a radix sort.

namespace {

constexpr int warp = 32, order_threads = 1024, warps = order_threads / warp;
constexpr unsigned all_lanes = 0xffffffffU;

template <class Index>
struct Indices {
  const Index* at;
  int64_t count, extent, skip;

  __device__ unsigned key(int64_t k) const {
    const int64_t i = at[k];
    return static_cast<unsigned>(i >= 0 && i < extent && i != skip ? i : extent);
  }
};

/// Where an order goes.
struct Ordered {
  unsigned *keys, *positions, *begins;
};

/// Calls f(position, key less the first of the range, key) for a warp's stretch, all lanes
/// together. What lies before the range wraps around, and what there is not lies behind it.
template <class Index, class F>
__device__ void for_each_index(const Indices<Index>& indices, unsigned first, F&& f) {
  constexpr int ahead = 4;
  const int64_t stretch = ceil_div(indices.count, int64_t{order_threads}) * warp;
  const int64_t begin = threadIdx.x / warp * stretch, end = min(begin + stretch, indices.count);
  for (int64_t base = begin; base < end; base += ahead * warp) {
    unsigned key[ahead];
#pragma unroll
    for (int u = 0; u < ahead; ++u) {
      const int64_t at = base + u * warp + threadIdx.x % warp;
      key[u] = at < end ? indices.key(at) : all_lanes;
    }
#pragma unroll
    for (int u = 0; u < ahead; ++u) f(base + u * warp + threadIdx.x % warp, key[u] - first, key[u]);
  }
}

template <class Index>
__global__ void __launch_bounds__(order_threads)
    order_kernel(Indices<Index> indices, Ordered to, unsigned width) {
  extern __shared__ unsigned places[];  // [warps, width]: how many, then where the next one goes
  unsigned* const own = places + threadIdx.x / warp * width;
  const unsigned first = blockIdx.x * width, thread = threadIdx.x;
  const unsigned range = min(width, static_cast<unsigned>(indices.extent) + 1 - first);
  for (unsigned i = thread; i < warps * width; i += order_threads) places[i] = 0;
  __syncthreads();
  unsigned before = 0;
  for_each_index(indices, first, [&](int64_t, unsigned at, unsigned key) {
    before += key < first;
    if (at < range) atomicAdd(own + at, 1U);
  });
  before = device::block_reduce(before, device::Sum{}, 0U);
  __syncthreads();
  unsigned total = 0;
  if (thread < range)
    for (int w = 0; w < warps; ++w) total += places[w * width + thread];
  const unsigned begin = before + scan_threads<false, ScanSum>(total);
  if (thread < range) {
    to.begins[first + thread] = begin;
    unsigned next = begin;
    for (int w = 0; w < warps; ++w) {
      const unsigned count = places[w * width + thread];
      places[w * width + thread] = next;
      next += count;
    }
  }
  __syncthreads();
  for_each_index(indices, first, [&](int64_t position, unsigned at, unsigned key) {
    const unsigned taken = __ballot_sync(all_lanes, at < range);
    if (taken == 0) return;
    if (at < range) {
      const unsigned alike = __match_any_sync(taken, at);
      const unsigned rank = __popc(alike & ((1U << thread % warp) - 1));
      const unsigned place = own[at] + rank;
      to.keys[place] = key;
      to.positions[place] = static_cast<unsigned>(position);
      __syncwarp(taken);
      if (rank == 0) own[at] += __popc(alike);
    }
    __syncwarp();
  });
}

/// How many indices a block orders, where there are few; else 0.
unsigned range_of(int64_t count, int64_t extent, Device device) {
  constexpr int64_t most_width = 368;     // of which shared memory holds the counts
  constexpr int64_t most_read = 1 << 16;  // indices, by a multiprocessor
  const int64_t blocks = device_properties(device).multiprocessors;
  const int64_t width = std::clamp(ceil_div(extent + 1, blocks), int64_t{warp}, most_width);
  const int64_t turns = ceil_div(extent + 1, width * blocks);
  return turns * count <= most_read ? static_cast<unsigned>(width) : 0;
}

constexpr int threads = 256;

template <class Index>
__global__ void prepare_kernel(Indices<Index> indices, unsigned* keys, unsigned* positions) {
  const int64_t step = int64_t{gridDim.x} * blockDim.x;
  for (int64_t k = int64_t{blockIdx.x} * blockDim.x + threadIdx.x; k < indices.count; k += step) {
    keys[k] = indices.key(k);
    positions[k] = static_cast<unsigned>(k);
  }
}

__global__ void begins_kernel(const unsigned* keys, int64_t count, unsigned* begins,
                              unsigned extent) {
  const int64_t k = int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  if (k > count) return;
  const unsigned last = k < count ? keys[k] : extent;
  for (unsigned i = k > 0 ? keys[k - 1] + 1 : 0; i <= last; ++i)
    begins[i] = static_cast<unsigned>(k);
}

unsigned* words(const Tensor& x) { return static_cast<unsigned*>(x.data()); }

template <class Index>
void sort(const Indices<Index>& indices, const IndexOrder& to, Stream stream) {
  const Device device = to.keys.device();
  const auto named = KeyedPositions::of(Tensor::empty_like(to.positions), sizeof(unsigned));
  prepare_kernel<<<grid_size(indices.count, threads, device), threads, 0, native(stream)>>>(
      indices, words(named.keys), words(named.positions));
  BS_CUDA_CHECK_LAUNCH("index_order");
  sort_pairs(named, {to.keys, to.positions}, 0,
             std::bit_width(static_cast<uint64_t>(indices.extent)), stream);
  begins_kernel<<<grid_of("index_order", ceil_div(indices.count + 1, threads)), threads, 0,
                  native(stream)>>>(words(to.keys), indices.count, words(to.begins),
                                    static_cast<unsigned>(indices.extent));
}

}  // namespace

IndexOrder index_order(const Tensor& indices, int64_t extent, int64_t skip, Stream stream) {
  const int64_t count = indices.numel();
  const Device device = indices.device();
  const auto room = [&](int64_t n) { return Tensor::empty({n}, i32, device); };
  const IndexOrder to{room(count), room(count), room(extent + 1)};
  const unsigned width = range_of(count, extent, device);
  visit_index("index_order", indices.dtype(), [&]<class Index>(Type<Index>) {
    const Indices<Index> of{pointer<Index>(indices), count, extent, skip};
    if (width == 0) return sort(of, to, stream);
    order_kernel<<<static_cast<unsigned>(ceil_div(extent + 1, int64_t{width})), order_threads,
                   warps * width * sizeof(unsigned), native(stream)>>>(
        of, Ordered{words(to.keys), words(to.positions), words(to.begins)}, width);
  });
  BS_CUDA_CHECK_LAUNCH("index_order");
  return to;
}

}  // namespace bs::cuda
