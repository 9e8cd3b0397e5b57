#include <bs/kernels/copy.h>
#include <bs/kernels/fill.h>
#include <bs/kernels/gather.h>
#include <bs/kernels/index_select.h>
#include <bs/lib/cuda/grid.h>
#include <bs/lib/cuda/launch.h>
#include <bs/kernels/cuda/index/gather_places.cuh>
#include <bs/kernels/cuda/rows.cuh>

namespace bs::cuda {

namespace {

constexpr int threads = 256;
constexpr int ahead = 4;  ///< values of a lane that are added together

template <class U>
__global__ void add_integers_kernel(const U* source, Places places, U* y, int64_t count) {
  const int64_t step = int64_t{gridDim.x} * blockDim.x;
  for (int64_t e = int64_t{blockIdx.x} * blockDim.x + threadIdx.x; e < count; e += step) {
    const int64_t at = places(e);
    if (at >= 0) atomicAdd(y + at, source[e]);
  }
}

constexpr int warp = 32;
constexpr unsigned all_lanes = 0xffffffffU;

/// Values [ahead, lanes] that a warp adds at a time, and their places; -1 for none.
template <class W>
struct Addends {
  int at[ahead];
  W values[ahead];
};

/// A row of sums that a warp adds to; values of one place in their order.
template <class W>
struct SummedRow {
  W* sums;
  uint8_t* tags;  ///< scratch: the lane that names a place, the last of several

  __device__ void add(unsigned lane, const Addends<W>& of) const {
    unsigned tag[ahead];
#pragma unroll
    for (int u = 0; u < ahead; ++u) {
      tag[u] = lane;
      if (of.at[u] >= 0) tags[of.at[u]] = static_cast<uint8_t>(lane);
      __syncwarp();
      if (of.at[u] >= 0) tag[u] = tags[of.at[u]];
      __syncwarp();
    }
#pragma unroll
    for (int u = 0; u < ahead; ++u) {
      if (__any_sync(all_lanes, tag[u] != lane)) {
        add_in_turn(lane, of.at[u], of.values[u]);
      } else if (of.at[u] >= 0) {
        sums[of.at[u]] += of.values[u];
      }
      __syncwarp();
    }
  }

 private:
  /// A value a lane, of places that several may share.
  __device__ void add_in_turn(unsigned lane, int at, W value) const {
    const unsigned alike = __match_any_sync(all_lanes, at);
    const unsigned turn = __popc(alike & ((1U << lane) - 1));
    const unsigned turns = __reduce_max_sync(all_lanes, at >= 0 ? turn + 1 : 0);
#pragma unroll 1
    for (unsigned t = 0; t < turns; ++t) {
      if (at >= 0 && turn == t) sums[at] += value;
      __syncwarp();
    }
  }
};

/// The same as they come from memory.
template <class T>
struct LoadedAddends {
  int64_t index[ahead];
  T values[ahead];

  __device__ void load(const T* source, const Places& places, int64_t row, int64_t first) {
    const T* const from = source + row * places.m + first;
    const int64_t at = row * places.outer_stride + first * places.stride;
    const int64_t left = places.m - first, step = warp * places.stride;
    const auto take = [&](int u) {
      index[u] = places.index[at + u * step];
      values[u] = from[u * warp];
    };
    if (__all_sync(all_lanes, left > (ahead - 1) * warp)) {  // no condition for each
#pragma unroll
      for (int u = 0; u < ahead; ++u) take(u);
      return;
    }
#pragma unroll
    for (int u = 0; u < ahead; ++u) {
      index[u] = -1;
      if (u * warp < left) take(u);
    }
  }
  __device__ Addends<device::wide<T>> widened(int64_t n) const {
    Addends<device::wide<T>> of;
#pragma unroll
    for (int u = 0; u < ahead; ++u) {
      const bool is_place = static_cast<uint64_t>(index[u]) < static_cast<uint64_t>(n);
      of.at[u] = is_place ? static_cast<int>(index[u]) : -1;
      of.values[u] = device::widen(values[u]);
    }
    return of;
  }
};

/// y = x + source [rows, m], of rows of n; x is null for zeros. A warp holds its row in shared
/// memory meanwhile. Few warps have room, so each has several groups of values on their way.
template <class T, int N>
__global__ void __launch_bounds__(warp, 8)
    add_rows_kernel(const T* x, const T* source, Places places, T* y, int64_t rows) {
  using W = device::wide<T>;
  using Sums = device::Pack<W, N>;
  constexpr int groups = 4, values = ahead * warp;
  extern __shared__ uint4 memory[];
  const int64_t n = places.n, m = places.m;
  const SummedRow<W> row{reinterpret_cast<W*>(memory),
                         reinterpret_cast<uint8_t*>(memory) + n * sizeof(W)};
  auto* const sums = reinterpret_cast<Sums*>(memory);
  const auto packs = static_cast<int>(n / N), lane = static_cast<int>(threadIdx.x);
  for (int64_t o = blockIdx.x; o < rows; o += gridDim.x) {
    LoadedAddends<T> loaded[groups];
#pragma unroll
    for (int g = 0; g < groups; ++g) loaded[g].load(source, places, o, g * values + lane);
#pragma unroll 8
    for (int p = lane; p < packs; p += warp) {
      Sums pack;
      get_over(x ? x + o * n : nullptr, static_cast<unsigned>(p), W(0), pack.at);
      sums[p] = pack;
    }
    __syncwarp();
    for (int64_t first = 0; first < m; first += groups * values) {
#pragma unroll
      for (int g = 0; g < groups; ++g) {
        const Addends<W> addends = loaded[g].widened(n);
        loaded[g].load(source, places, o, first + (groups + g) * values + lane);
        row.add(threadIdx.x, addends);
      }
    }
#pragma unroll 4
    for (int p = lane; p < packs; p += warp) store_pack<N>(y + o * n, p, sums[p].at);
    __syncwarp();
  }
}

/// Whether rows are enough to be shared out, and small enough to be held in shared memory.
template <class W>
size_t held_row_bytes(int64_t rows, int64_t n, int64_t inner) {
  constexpr int64_t enough_rows = 32, most_bytes = 48 << 10;
  const int64_t bytes = n * static_cast<int64_t>(sizeof(W) + 1);
  return inner == 1 && rows >= enough_rows && bytes <= most_bytes ? static_cast<size_t>(bytes) : 0;
}

__global__ void flat_kernel(Places places, int64_t* flat, int64_t count) {
  const int64_t step = int64_t{gridDim.x} * blockDim.x;
  for (int64_t e = int64_t{blockIdx.x} * blockDim.x + threadIdx.x; e < count; e += step)
    flat[e] = places(e);
}

/// By sorting, where rows can't be held: of a place the sum of its values, then added to x.
void add_sorted(const Places& at, const Tensor& x, const Tensor& source, const Tensor& y,
                Stream stream) {
  const int64_t count = source.numel();
  const Tensor flat = Tensor::empty({count}, i64, y.device());
  flat_kernel<<<grid_size(count, threads, y.device()), threads, 0, native(stream)>>>(
      at, flat.data<int64_t>(), count);
  const Shape all = {1, y.numel(), 1};
  index_select_backward(x.defined() ? x.view(all) : x, source.view({1, count, 1}), flat,
                        y.view(all), -1, stream);
}

void add_floats(const Places& at, const Tensor& x, const Tensor& source, const Tensor& y,
                Stream stream) {
  visit_floating("scatter_add", y.dtype(), [&]<class T>(Type<T>) {
    using D = device_type<T>;
    const int64_t rows = y.size(0);
    const size_t held = held_row_bytes<device::wide<D>>(rows, at.n, at.inner);
    if (held == 0) return add_sorted(at, x, source, y, stream);
    visit_pack<T>(aligned16(x, y), at.n, [&]<int N>(std::integral_constant<int, N>) {
      add_rows_kernel<D, N><<<grid_of("scatter_add", rows), warp, held, native(stream)>>>(
          maybe<T>(x), pointer<T>(source), at, pointer<T>(y), rows);
    });
  });
}

}  // namespace

void scatter_add(const Tensor& x, const Tensor& index, const Tensor& source, const Tensor& y,
                 Stream stream) {
  const int64_t count = source.numel();
  const unsigned blocks = grid_size(count, threads, y.device());
  const Places at = places(index, y.size(1));
  // Integers come to the same sum in any order. Floats are added in the order of their positions.
  if (is_floating(y.dtype())) {
    add_floats(at, x, source, y, stream);
    return BS_CUDA_CHECK_LAUNCH("scatter_add");
  }
  if (!x.defined()) {
    fill(y, 0, stream);
  } else if (x.data() != y.data()) {
    copy(x, y, stream);
  }
  if (y.dtype() == i64) {
    using U = unsigned long long;
    add_integers_kernel<<<blocks, threads, 0, native(stream)>>>(
        static_cast<const U*>(source.data()), at, static_cast<U*>(y.data()), count);
  } else {
    add_integers_kernel<<<blocks, threads, 0, native(stream)>>>(
        static_cast<const unsigned*>(source.data()), at, static_cast<unsigned*>(y.data()), count);
  }
  BS_CUDA_CHECK_LAUNCH("scatter_add");
}

}  // namespace bs::cuda
