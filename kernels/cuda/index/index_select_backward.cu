#include <bs/kernels/cuda/index/index_order.h>
#include <bs/kernels/index_select.h>
#include <bs/lib/cuda/grid.h>
#include <bs/kernels/cuda/early_launch.cuh>
#include <bs/kernels/cuda/rows.cuh>

#include <limits>

namespace bs::cuda {

// The backward sorts positions by their index, those of equal indices in their order, and cuts the
// list into chunks of one length. So the work is even however often an index occurs, and the order
// of additions depends on the indices alone. A run of equal indices within a chunk is summed
// straight into its row. One that goes on over several leaves a partial sum in each, which a second
// kernel adds up in an order of their number alone. Single elements of rows that shared memory
// holds are summed there.

namespace {

using device::Raw;
using device::wide;

constexpr int threads = 256;
constexpr int warp = 32;
/// Sorted positions of a chunk.
constexpr int chunk = 32;
/// Positions whose values are loaded ahead of their additions.
constexpr int ahead = 4;

/// Sorted indices, the position of each in dy, and where those of each row begin.
struct Sorted {
  const unsigned* keys;
  const unsigned* positions;
  const unsigned* begins;
  int64_t count;

  __device__ bool joined(int64_t k) const {  ///< whether k - 1 and k belong to one run
    return k > 0 && k < count && keys[k - 1] == keys[k];
  }
};

/// Partial sums [outer, chunks, 2, inner] of runs that leave their chunk. The first is of the one
/// that came from the chunk before, the second of the one that begins here and goes on.
template <class W>
struct Partial {
  W* sums;
  int64_t chunks, inner;

  __device__ W* came(int64_t o, int64_t c) const { return sums + (o * chunks + c) * 2 * inner; }
  __device__ W* begins(int64_t o, int64_t c) const { return came(o, c) + inner; }
};

/// What the sums go to: dx, or x where there is one and they are added to it.
template <class T>
struct Result {
  const T* x;
  T* dx;

  template <int N>
  __device__ void store(int64_t at, const wide<T> (&sum)[N]) const {
    if (!x) return store_pack<N>(dx + at, sum);
    wide<T> values[N];
    device::widen_pack<T, N>(*reinterpret_cast<const Raw<T, N>*>(x + at), values);
#pragma unroll
    for (int i = 0; i < N; ++i) values[i] += sum[i];
    store_pack<N>(dx + at, values);
  }
};

/// Rows of other_rows a warp.
constexpr int other_rows_a_warp = 8;

/// Rows that no index names are zeros or those of x, which a warp writes to some of them.
template <class T, int N>
__device__ void write_other_rows(const Sorted& sorted, const Result<T>& result, int64_t outer,
                                 unsigned extent, int64_t inner, unsigned block) {
  using Pack = device::Pack<T, N>;
  const unsigned lane = threadIdx.x % warp;
  const unsigned first = (block * (blockDim.x / warp) + threadIdx.x / warp) * other_rows_a_warp;
  unsigned begin = 0;
  if (lane <= other_rows_a_warp && first + lane <= extent) begin = sorted.begins[first + lane];
  for (unsigned r = 0; r < other_rows_a_warp && first + r < extent; ++r) {
    const unsigned here = __shfl_sync(0xffffffffU, begin, r);
    if (here != __shfl_sync(0xffffffffU, begin, r + 1)) continue;
    for (int64_t o = 0; o < outer; ++o) {
      const int64_t at = (o * extent + first + r) * inner;
      const auto* const from = reinterpret_cast<const Pack*>(result.x + at);
      auto* const to = reinterpret_cast<Pack*>(result.dx + at);
      for (int64_t p = lane; p < inner / N; p += warp) to[p] = result.x ? from[p] : Pack{};
    }
  }
}

/// A block a chunk and a stretch of columns of all of `outer`, a thread N neighbouring columns. The
/// blocks behind the chunks write the other rows, if there are any.
template <class T, int N>
__global__ void __launch_bounds__(threads)
    sum_chunks_kernel(const T* dy, Sorted sorted, Partial<wide<T>> partial, Result<T> result,
                      int64_t outer, unsigned extent) {
  using W = wide<T>;
  const int64_t inner = partial.inner;
  const auto chunks = static_cast<unsigned>(partial.chunks);
  if (blockIdx.x >= chunks) {
    if (blockIdx.y == 0)
      write_other_rows<T, N>(sorted, result, outer, extent, inner, blockIdx.x - chunks);
    return;
  }
  __shared__ unsigned rows[chunk + 2], positions[chunk];  // rows also of both neighbours
  const int64_t first = int64_t{blockIdx.x} * chunk;
  const int n = static_cast<int>(min(int64_t{chunk}, sorted.count - first));
  for (int k = threadIdx.x; k < n + 2; k += blockDim.x) {
    const int64_t at = first + k - 1;
    rows[k] = at >= 0 && at < sorted.count ? sorted.keys[at] : ~0U;
    if (k < n) positions[k] = sorted.positions[first + k];
  }
  __syncthreads();
  const int64_t step = int64_t{gridDim.y} * blockDim.x * N;
  for (int64_t i = (int64_t{blockIdx.y} * blockDim.x + threadIdx.x) * N; i < outer * inner;
       i += step) {
    const int64_t o = i / inner;
    const int64_t column = i - o * inner;
    const T* const source = dy + o * sorted.count * inner + column;
    W sum[N] = {};
    for (int from = 0; from < n; from += ahead) {
      Raw<T, N> raw[ahead];
#pragma unroll
      for (int j = 0; j < ahead; ++j)
        if (from + j < n)
          raw[j] = *reinterpret_cast<const Raw<T, N>*>(source + positions[from + j] * inner);
#pragma unroll
      for (int j = 0; j < ahead; ++j) {
        const int k = from + j;
        if (k < n) {
          W values[N];
          device::widen_pack<T, N>(raw[j], values);
#pragma unroll
          for (int c = 0; c < N; ++c) sum[c] += values[c];
          const unsigned row = rows[k + 1];
          const bool came = row == rows[0], goes_on = row == rows[k + 2];
          if (!goes_on || k + 1 == n) {
            if (came || goes_on) {
              W* to = came ? partial.came(o, blockIdx.x) : partial.begins(o, blockIdx.x);
              store_pack<N>(to + column, sum);
            } else if (row < extent) {
              result.template store<N>((o * extent + row) * inner + column, sum);
            }
#pragma unroll
            for (int c = 0; c < N; ++c) sum[c] = 0;
          }
        }
      }
    }
  }
}

/// The same of one or two columns: a warp a chunk, a lane a position. Lanes of one run add up by
/// steps of 1, 2, 4, .. lanes.
template <class T>
__global__ void __launch_bounds__(threads)
    sum_narrow_kernel(const T* dy, Sorted sorted, Partial<wide<T>> partial, Result<T> result,
                      int64_t outer, unsigned extent) {
  static_assert(chunk == warp);
  constexpr unsigned all = 0xffffffffU;
  const int64_t c = int64_t{blockIdx.x} * (threads / warp) + threadIdx.x / warp;
  if (c >= partial.chunks) return;
  const int64_t inner = partial.inner, k = c * chunk + threadIdx.x % warp;
  const unsigned lane = threadIdx.x % warp;
  const bool valid = k < sorted.count, joined = sorted.joined(k), goes_on = sorted.joined(k + 1);
  const unsigned row = valid ? sorted.keys[k] : extent;
  const int64_t position = valid ? sorted.positions[k] : 0;
  // Where the lane's run begins in the chunk.
  const unsigned heads = __ballot_sync(all, !joined || lane == 0);
  const unsigned head = 31 - __clz(heads & (all >> (31 - lane)));
  const bool came = __shfl_sync(all, joined, head);
  const bool last = valid && (!goes_on || lane == warp - 1);
#pragma unroll 4
  for (int64_t i = 0; i < outer * inner; ++i) {
    const int64_t o = i / inner, column = i - o * inner;
    wide<T> sum[1] = {};
    if (valid) sum[0] = device::widen(dy[(o * sorted.count + position) * inner + column]);
#pragma unroll
    for (unsigned step = 1; step < warp; step *= 2) {
      const wide<T> more = __shfl_up_sync(all, sum[0], step);
      if (lane >= head + step) sum[0] += more;
    }
    if (!last) continue;
    if (came || goes_on) {
      (came ? partial.came(o, c) : partial.begins(o, c))[column] = sum[0];
    } else if (row < extent) {
      result.template store<1>((o * extent + row) * inner + column, sum);
    }
  }
}

/// Finishes the run that begins in the block's chunk and goes on, where there is one. Of few
/// columns the rows of threads share its chunks out.
template <class T, int N>
__global__ void __launch_bounds__(threads)
    join_chunks_kernel(Sorted sorted, Partial<wide<T>> partial, Result<T> result, int64_t outer,
                       unsigned extent) {
  using W = wide<T>;
  using Sums = device::Pack<W, N>;
  __shared__ Sums shares[threads];
  wait_for_previous_launch();
  const int64_t c = blockIdx.x;
  const int64_t next = (c + 1) * chunk;
  if (!sorted.joined(next)) return;
  const unsigned row = sorted.keys[next];
  if (row >= extent || sorted.begins[row] < c * chunk) return;
  const int64_t last = (sorted.begins[row + 1] - 1) / chunk;
  const int64_t inner = partial.inner;
  const int64_t step = int64_t{gridDim.y} * blockDim.x * N;
  const auto add = [](Sums& sum, const Sums& more) {
#pragma unroll
    for (int k = 0; k < N; ++k) sum.at[k] += more.at[k];
  };
  for (int64_t i = (int64_t{blockIdx.y} * blockDim.x + threadIdx.x) * N; i < outer * inner;
       i += step) {
    const int64_t o = i / inner;
    const int64_t column = i - o * inner;
    Sums sum{};
    if (threadIdx.y == 0) sum = *reinterpret_cast<const Sums*>(partial.begins(o, c) + column);
#pragma unroll 4
    for (int64_t d = c + 1 + threadIdx.y; d <= last; d += blockDim.y)
      add(sum, *reinterpret_cast<const Sums*>(partial.came(o, d) + column));
    if (blockDim.y > 1) {  // then a row of threads has all columns, and passes here once
      Sums* const share = shares + threadIdx.y * blockDim.x + threadIdx.x;
      *share = sum;
      for (unsigned rows = blockDim.y; rows > 1;) {
        const unsigned half = (rows + 1) / 2;
        __syncthreads();
        if (threadIdx.y + half < rows) add(*share, share[half * blockDim.x]);
        rows = half;
      }
      if (threadIdx.y > 0) return;
      sum = *share;
    }
    result.template store<N>((o * extent + row) * inner + column, sum.at);
  }
}

constexpr int element_threads = 512;

/// Sums of single elements along the last axis. A block holds a pack of rows, side by side in
/// shared memory, and a thread looks up an element's positions once for all of them.
template <class T>
__global__ void __launch_bounds__(element_threads)
    sum_elements_kernel(const T* dy, Sorted sorted, Result<T> result, int64_t outer,
                        unsigned extent) {
  using W = wide<T>;
  constexpr int R = device::pack_size<T>;
  extern __shared__ uint4 memory[];
  auto* const held = reinterpret_cast<device::Pack<T, R>*>(memory);
  const auto count = static_cast<unsigned>(sorted.count);
  for (int64_t o = int64_t{blockIdx.x} * R; o < outer; o += int64_t{gridDim.x} * R) {
    const auto rows = static_cast<int>(min(int64_t{R}, outer - o));
#pragma unroll 2
    for (unsigned k = threadIdx.x; k < count; k += element_threads) {
      device::Pack<T, R> pack = {};
#pragma unroll
      for (int r = 0; r < R; ++r)
        if (r < rows) pack.at[r] = dy[(o + r) * count + k];
      held[k] = pack;
    }
    __syncthreads();
    for (unsigned i = threadIdx.x; i < extent; i += element_threads) {
      W sum[R] = {};
      const unsigned end = sorted.begins[i + 1];
      for (unsigned k = sorted.begins[i]; k < end; ++k) {
        W values[R];
        device::widen_pack<T, R>(reinterpret_cast<const Raw<T, R>&>(held[sorted.positions[k]]),
                                 values);
#pragma unroll
        for (int r = 0; r < R; ++r) sum[r] += values[r];
      }
#pragma unroll
      for (int r = 0; r < R; ++r)
        if (r < rows) result.template store<1>((o + r) * extent + i, {sum[r]});
    }
    __syncthreads();
  }
}

/// Whether blocks hold rows of `count` elements: of 16 bytes each, so that two blocks fit.
bool holds_elements(const Tensor& dx, int64_t count) {
  constexpr int64_t enough_rows = 64, most_bytes = 96 << 10;
  return dx.size(2) == 1 && dx.size(0) >= enough_rows && count * 16 <= most_bytes;
}

template <class T>
void sum_elements(const Tensor& dy, const Sorted& sorted, const Result<T>& result, int64_t extent,
                  Stream stream) {
  const Device device = dy.device();
  const auto bytes = static_cast<int>(sorted.count * 16);
  BS_CUDA_CHECK(cudaFuncSetAttribute(sum_elements_kernel<T>,
                                     cudaFuncAttributeMaxDynamicSharedMemorySize, bytes));
  constexpr int shared_bytes = 200 << 10, most_resident = 4;
  const int resident = std::min(most_resident, shared_bytes / bytes);
  sum_elements_kernel<T><<<grid_size(dy.size(0), device::pack_size<T>, device, resident),
                           element_threads, static_cast<size_t>(bytes), native(stream)>>>(
      static_cast<const T*>(dy.data()), sorted, result, dy.size(0), static_cast<unsigned>(extent));
}

/// By chunks of the order, N neighbouring columns a thread; `by_rows`: rows that no index names are
/// still to be written.
template <class T, int N>
void sum_chunks(const T* dy, const Sorted& sorted, const Partial<wide<T>>& partial,
                const Result<T>& result, int64_t outer, unsigned extent, bool by_rows,
                Stream stream) {
  const char* op = "index_select_backward";
  const int64_t chunks = partial.chunks, packs = outer * partial.inner / N;
  const auto across = static_cast<unsigned>(std::min<int64_t>(threads, packs));
  const auto down = static_cast<unsigned>(std::min<int64_t>(ceil_div(packs, across), 65535));
  constexpr int narrow = 2;  // columns: with 16 of f32, lanes that share took 1.38 of the time
  if (outer * partial.inner <= narrow) {
    sum_narrow_kernel<T>
        <<<grid_of(op, ceil_div(chunks, int64_t{threads / warp})), threads, 0, native(stream)>>>(
            dy, sorted, partial, result, outer, extent);
  } else {
    const unsigned whole_warps = ceil_div(across, unsigned{warp}) * warp;
    const int64_t others = int64_t{whole_warps / warp} * other_rows_a_warp;
    const int64_t blocks = chunks + (by_rows ? ceil_div(int64_t{extent}, others) : 0);
    sum_chunks_kernel<T, N><<<dim3(grid_of(op, blocks), down), whole_warps, 0, native(stream)>>>(
        dy, sorted, partial, result, outer, extent);
  }
  BS_CUDA_CHECK_LAUNCH(op);
  launch_early(join_chunks_kernel<T, N>, dim3(static_cast<unsigned>(chunks), down),
               dim3(across, threads / across), 0, stream, sorted, partial, result, outer, extent);
}

template <class T>
void sum_rows(const Tensor& dy, const Sorted& sorted, const Result<device_type<T>>& result,
              const Tensor& dx, Stream stream) {
  using D = device_type<T>;
  using W = wide<D>;
  const int64_t outer = dx.size(0), extent = dx.size(1), inner = dx.size(2);
  const int64_t chunks = ceil_div(sorted.count, chunk);
  const Tensor sums = Tensor::empty({outer, chunks, 2, inner}, dtype_of<W>, dy.device());
  const Partial<W> partial{sums.data<W>(), chunks, inner};
  // Long rows that no index names are written one by one, since the others are written once then.
  constexpr int64_t long_row = 512;  // bytes
  const bool by_rows = inner * static_cast<int64_t>(sizeof(T)) >= long_row;
  if (!by_rows && !result.x) fill_zero(dx.data(), dx.bytes(), stream);
  if (!by_rows && result.x && result.x != result.dx)
    BS_CUDA_CHECK(
        cudaMemcpyAsync(result.dx, result.x, dx.bytes(), cudaMemcpyDeviceToDevice, native(stream)));
  const bool aligned = aligned16(dy, dx) && reinterpret_cast<uintptr_t>(result.x) % 16 == 0;
  visit_pack<T>(aligned, inner, [&]<int N>(std::integral_constant<int, N>) {
    sum_chunks<D, N>(pointer<T>(dy), sorted, partial, result, outer, static_cast<unsigned>(extent),
                     by_rows, stream);
  });
}

}  // namespace

void index_select_backward(const Tensor& x, const Tensor& dy, const Tensor& indices,
                           const Tensor& dx, int64_t skip, Stream stream) {
  const int64_t extent = dx.size(1), count = dy.size(1);
  BS_CHECK(std::max(extent, count) < std::numeric_limits<int32_t>::max(),
           "index_select_backward: {} indices into {} rows are too many", count, extent);
  const IndexOrder order = index_order(indices, extent, skip, stream);
  const auto words = [](const Tensor& x) { return static_cast<const unsigned*>(x.data()); };
  const Sorted sorted{words(order.keys), words(order.positions), words(order.begins), count};
  visit_floating("index_select_backward", dy.dtype(), [&]<class T>(Type<T>) {
    const Result<device_type<T>> result{maybe<T>(x), pointer<T>(dx)};
    if (holds_elements(dx, count)) return sum_elements(dy, sorted, result, extent, stream);
    sum_rows<T>(dy, sorted, result, dx, stream);
  });
  BS_CUDA_CHECK_LAUNCH("index_select_backward");
}

}  // namespace bs::cuda
