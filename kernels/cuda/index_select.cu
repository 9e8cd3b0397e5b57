#include <bs/kernels/index_select.h>
#include <bs/lib/cuda/grid.h>
#include <bs/kernels/cuda/device/ptx/async_copy.cuh>
#include <bs/kernels/cuda/rows.cuh>

#include <cub/device/device_radix_sort.cuh>

#include <bit>
#include <cstring>
#include <limits>

namespace bs::cuda {

namespace {

using device::Raw;
using device::wide;

constexpr int threads = 256;
constexpr int warp = 32;

/// Copies rows of `width` units; a unit is an element, or 16 bytes of them. Rows of indices outside
/// the table are filled with `absent`.
template <class Unit, class Index>
__global__ void gather_kernel(const Unit* x, const Index* indices, Unit* y, Unit absent,
                              int64_t rows, int64_t count, int64_t extent, int64_t width) {
  const int64_t step = int64_t{gridDim.x} * blockDim.y;
  for (int64_t r = int64_t{blockIdx.x} * blockDim.y + threadIdx.y; r < rows; r += step) {
    const int64_t index = indices[r % count];
    const bool inside = index >= 0 && index < extent;
    const Unit* from = x + (r / count * extent + index) * width;
    for (int64_t i = threadIdx.x; i < width; i += blockDim.x)
      y[r * width + i] = inside ? from[i] : absent;
  }
}

/// The same for rows of a few units, so for single elements along the last axis: a block holds
/// `held` of outer's matrices [extent, width] in shared memory, where reading here and there is
/// cheap, and a thread takes its place in [count, width] from all of them.
template <class Unit, class Index>
__global__ void __launch_bounds__(threads)
    gather_held_kernel(const Unit* x, const Index* indices, Unit* y, Unit absent, int64_t outer,
                       uint32_t held, uint32_t line, int64_t extent, uint32_t width) {
  extern __shared__ uint4 memory[];
  auto* const matrices = reinterpret_cast<Unit*>(memory);
  const auto size = static_cast<uint32_t>(extent) * width;
  for (int64_t first = int64_t{blockIdx.x} * held; first < outer;
       first += int64_t{gridDim.x} * held) {
    const auto n = static_cast<uint32_t>(outer - first < held ? outer - first : held);
#pragma unroll 8
    for (uint32_t e = threadIdx.x; e < n * size; e += threads) matrices[e] = x[first * size + e];
    __syncthreads();
#pragma unroll 2
    for (uint32_t e = threadIdx.x; e < line; e += threads) {
      const uint32_t k = width == 1 ? e : e / width;
      const int64_t index = indices[k];
      const bool inside = index >= 0 && index < extent;
      const uint32_t at = inside ? static_cast<uint32_t>(index) * width + e - k * width : 0;
#pragma unroll 4
      for (uint32_t o = 0; o < n; ++o)
        y[(first + o) * line + e] = inside ? matrices[o * size + at] : absent;
    }
    __syncthreads();
  }
}

/// Rows of n elements, of which `line` are selected: both whole packs of 16 bytes, n less than
/// 2^16.
template <class Unit>
struct SelectedRows {
  static constexpr int N = 16 / static_cast<int>(sizeof(Unit));
  static constexpr unsigned stages = 2;
  const Unit* x;
  Unit* y;
  Unit absent;
  int64_t rows;
  unsigned n, line;

  /// Of the rows and places that a block has in shared memory.
  unsigned bytes() const {
    return stages * n * static_cast<unsigned>(sizeof(Unit)) +
           line * static_cast<unsigned>(sizeof(uint16_t));
  }
};

/// The same for single elements of whole packs: a block takes row after row, the next of which is
/// on its way while one is read here and there in shared memory.
template <class Unit, class Index>
__global__ void __launch_bounds__(threads)
    gather_row_kernel(SelectedRows<Unit> selected, const Index* indices) {
  using Rows = SelectedRows<Unit>;
  constexpr int N = Rows::N;
  constexpr uint16_t none = 0xffff;
  extern __shared__ uint4 memory[];
  const unsigned row_packs = selected.n / N, line_packs = selected.line / N;
  auto* const places = reinterpret_cast<uint16_t*>(memory + Rows::stages * row_packs);
  const auto fetch = [&](int64_t row, unsigned stage) {
    const auto* from = reinterpret_cast<const uint4*>(selected.x) + row * row_packs;
    if (row < selected.rows)
      for (unsigned p = threadIdx.x; p < row_packs; p += threads)
        device::copy_async_16(memory + stage * row_packs + p, from + p, true);
    device::commit_copies();
  };
  fetch(blockIdx.x, 0);
  for (unsigned k = threadIdx.x; k < selected.line; k += threads) {
    const int64_t index = indices[k];
    places[k] = index >= 0 && index < selected.n ? static_cast<uint16_t>(index) : none;
  }
  unsigned stage = 0;
  for (int64_t row = blockIdx.x; row < selected.rows; row += gridDim.x, stage ^= 1) {
    fetch(row + gridDim.x, stage ^ 1);
    device::wait_copies<1>();
    __syncthreads();
    const auto* const from = reinterpret_cast<const Unit*>(memory + stage * row_packs);
    auto* const to = reinterpret_cast<device::Pack<Unit, N>*>(selected.y) + row * line_packs;
    for (unsigned p = threadIdx.x; p < line_packs; p += threads) {
      const auto at = reinterpret_cast<const device::Pack<uint16_t, N>*>(places)[p];
      device::Pack<Unit, N> pack;
#pragma unroll
      for (int i = 0; i < N; ++i) pack.at[i] = at.at[i] == none ? selected.absent : from[at.at[i]];
      to[p] = pack;
    }
    __syncthreads();
  }
}

/// Bytes of the value that stands for a missing element, over 16 bytes: NaN, 0 for integers.
uint4 absent_bits(DType dtype) {
  unsigned char bytes[16] = {};
  visit_any(dtype, [&]<class T>(Type<T>) {
    T value{};
    if constexpr (std::is_same_v<T, half>) {
      value = half(std::numeric_limits<float>::quiet_NaN());
    } else if constexpr (std::is_same_v<T, bfloat16>) {
      value = bfloat16(std::numeric_limits<float>::quiet_NaN());
    } else if constexpr (std::is_floating_point_v<T>) {
      value = std::numeric_limits<T>::quiet_NaN();
    }
    for (size_t at = 0; at < sizeof bytes; at += sizeof value)
      std::memcpy(bytes + at, &value, sizeof value);
  });
  uint4 bits;
  std::memcpy(&bits, bytes, sizeof bits);
  return bits;
}

/// Selects elements of rows that a block has room for, and says whether they are such.
template <class Unit>
bool gather_rows(const Tensor& x, const Tensor& indices, const Tensor& y, Stream stream) {
  constexpr int64_t least_line = 128, longest_row = 0xffff, most_bytes = 48 << 10;
  using Rows = SelectedRows<Unit>;
  const int64_t n = x.size(1), line = y.size(1);
  const bool whole = aligned16(x, y) && (n | line) % Rows::N == 0;
  if (y.size(2) != 1 || !whole || line < least_line || n > longest_row || line > most_bytes)
    return false;
  const uint4 bits = absent_bits(x.dtype());
  Rows rows{static_cast<const Unit*>(x.data()), static_cast<Unit*>(y.data()), {}, y.size(0),
            static_cast<unsigned>(n),           static_cast<unsigned>(line)};
  std::memcpy(&rows.absent, &bits, sizeof rows.absent);
  const unsigned bytes = rows.bytes();
  if (bytes > most_bytes) return false;
  constexpr int most_resident = 2048 / threads, shared_bytes = 200 << 10;
  const int resident = std::min(most_resident, shared_bytes / static_cast<int>(bytes));
  visit_index("index_select", indices.dtype(), [&]<class Index>(Type<Index>) {
    gather_row_kernel<<<grid_size(rows.rows, 1, x.device(), resident), threads, bytes,
                        native(stream)>>>(rows, pointer<Index>(indices));
  });
  return true;
}

template <class Unit>
void gather(const Tensor& x, const Tensor& indices, const Tensor& y, Stream stream) {
  if constexpr (sizeof(Unit) < 16)
    if (gather_rows<Unit>(x, indices, y, stream)) return BS_CUDA_CHECK_LAUNCH("index_select");
  const int64_t width =
      y.size(2) * static_cast<int64_t>(size_of(x.dtype())) / static_cast<int64_t>(sizeof(Unit));
  const int64_t outer = y.size(0), rows = outer * y.size(1), line = y.size(1) * width;
  unsigned across = 1;
  while (across < threads && across < width) across *= 2;
  const dim3 block(across, threads / across);
  const uint4 bits = absent_bits(x.dtype());
  Unit absent;
  std::memcpy(&absent, &bits, sizeof absent);
  // Matrices that fit into shared memory a few at a time.
  constexpr int64_t narrow = 16, long_line = 128, most_bytes = 48 << 10;
  const int64_t matrix_bytes = x.size(1) * width * static_cast<int64_t>(sizeof(Unit));
  const int64_t held = std::min<int64_t>(8, most_bytes / std::max<int64_t>(matrix_bytes, 1));
  const bool holds = width < narrow && line >= long_line && outer > 1 && held > 0 &&
                     line <= std::numeric_limits<int32_t>::max();
  visit_index("index_select", indices.dtype(), [&]<class Index>(Type<Index>) {
    if (holds) {
      const unsigned blocks = grid_of("index_select", ceil_div(outer, held));
      gather_held_kernel<<<blocks, threads, static_cast<size_t>(held * matrix_bytes),
                           native(stream)>>>(
          static_cast<const Unit*>(x.data()), pointer<Index>(indices), static_cast<Unit*>(y.data()),
          absent, outer, static_cast<uint32_t>(held), static_cast<uint32_t>(line), x.size(1),
          static_cast<uint32_t>(width));
      return;
    }
    const unsigned blocks = grid_size(rows, static_cast<int>(block.y), x.device());
    gather_kernel<<<blocks, block, 0, native(stream)>>>(
        static_cast<const Unit*>(x.data()), pointer<Index>(indices), static_cast<Unit*>(y.data()),
        absent, rows, y.size(1), x.size(1), width);
  });
  BS_CUDA_CHECK_LAUNCH("index_select");
}

}  // namespace

void index_select(const Tensor& x, const Tensor& indices, const Tensor& y, const char*,
                  Stream stream) {
  const auto bits = reinterpret_cast<uintptr_t>(x.data()) | reinterpret_cast<uintptr_t>(y.data()) |
                    static_cast<uintptr_t>(y.size(2)) * size_of(x.dtype());
  if (bits % 16 == 0) return gather<uint4>(x, indices, y, stream);
  switch (size_of(x.dtype())) {
    case 1:
      return gather<uint8_t>(x, indices, y, stream);
    case 2:
      return gather<uint16_t>(x, indices, y, stream);
    case 4:
      return gather<uint32_t>(x, indices, y, stream);
    default:
      return gather<uint64_t>(x, indices, y, stream);
  }
}

// The backward sorts positions by their index, which keeps them in order where indices are equal,
// and cuts the sorted list into chunks of one length. So the work is even however often an index
// occurs, and the order of additions depends on the indices alone. A run of equal indices within a
// chunk is summed straight into its row; one that goes on over several leaves a partial sum in
// each, which a second kernel adds up in their order.

namespace {

/// Sorted positions of a chunk.
constexpr int chunk = 32;
/// Positions whose values are loaded ahead of their additions.
constexpr int ahead = 4;

template <class Index>
__global__ void prepare_kernel(const Index* indices, unsigned* keys, unsigned* positions,
                               int64_t count, int64_t extent, int64_t skip) {
  const int64_t step = int64_t{gridDim.x} * blockDim.x;
  for (int64_t k = int64_t{blockIdx.x} * blockDim.x + threadIdx.x; k < count; k += step) {
    const int64_t i = indices[k];
    const bool counts = i >= 0 && i < extent && i != skip;
    keys[k] = static_cast<unsigned>(counts ? i : extent);  // those behind the last row are left out
    positions[k] = static_cast<unsigned>(k);
  }
}

/// Sorted indices, and the position of each in dy.
struct Sorted {
  const unsigned* keys;
  const unsigned* positions;
  int64_t count;

  __device__ bool joined(int64_t k) const {  ///< whether k - 1 and k belong to one run
    return k > 0 && k < count && keys[k - 1] == keys[k];
  }
};

/// Partial sums [outer, chunks, 2, inner] of runs that leave their chunk: of the one that came from
/// the chunk before, and of the one that begins here and goes on.
template <class W>
struct Partial {
  W* sums;
  int64_t chunks, inner;

  __device__ W* came(int64_t o, int64_t c) const { return sums + (o * chunks + c) * 2 * inner; }
  __device__ W* begins(int64_t o, int64_t c) const { return came(o, c) + inner; }
};

/// A block a chunk and a stretch of columns of all of `outer`, a thread N neighbouring columns.
template <class T, int N>
__global__ void __launch_bounds__(threads)
    sum_chunks_kernel(const T* dy, Sorted sorted, Partial<wide<T>> partial, T* dx, int64_t outer,
                      unsigned extent) {
  using W = wide<T>;
  const int64_t inner = partial.inner;
  const int64_t first = int64_t{blockIdx.x} * chunk;
  const int n = static_cast<int>(min(int64_t{chunk}, sorted.count - first));
  const int64_t step = int64_t{gridDim.y} * blockDim.x * N;
  for (int64_t i = (int64_t{blockIdx.y} * blockDim.x + threadIdx.x) * N; i < outer * inner;
       i += step) {
    const int64_t o = i / inner;
    const int64_t column = i - o * inner;
    bool came = sorted.joined(first);
    W sum[N] = {};
    for (int from = 0; from < n; from += ahead) {
      Raw<T, N> raw[ahead];
#pragma unroll
      for (int j = 0; j < ahead; ++j)
        if (from + j < n)
          raw[j] = *reinterpret_cast<const Raw<T, N>*>(
              dy + (o * sorted.count + sorted.positions[first + from + j]) * inner + column);
#pragma unroll
      for (int j = 0; j < ahead; ++j) {
        if (from + j >= n) break;
        const int64_t k = first + from + j;
        W values[N];
        device::widen_pack<T, N>(raw[j], values);
#pragma unroll
        for (int c = 0; c < N; ++c) sum[c] += values[c];
        const bool goes_on = sorted.joined(k + 1);
        if (goes_on && from + j + 1 < n) continue;
        const unsigned row = sorted.keys[k];
        if (came || goes_on) {
          W* to = came ? partial.came(o, blockIdx.x) : partial.begins(o, blockIdx.x);
          store_pack<N>(to + column, sum);
        } else if (row < extent) {
          store_pack<N>(dx + (o * extent + row) * inner + column, sum);
        }
        came = false;
#pragma unroll
        for (int c = 0; c < N; ++c) sum[c] = 0;
      }
    }
  }
}

/// Finishes the run that begins in the block's chunk and goes on, where there is one.
template <class T, int N>
__global__ void __launch_bounds__(threads)
    join_chunks_kernel(Sorted sorted, Partial<wide<T>> partial, T* dx, int64_t outer,
                       unsigned extent) {
  using W = wide<T>;
  const int64_t c = blockIdx.x;
  const int64_t next = (c + 1) * chunk;
  if (!sorted.joined(next)) return;
  const unsigned row = sorted.keys[next];
  const bool begins_here = sorted.keys[c * chunk] != row || !sorted.joined(c * chunk);
  if (row >= extent || !begins_here) return;
  int64_t low = next;  // the run's last position
  for (int64_t high = sorted.count; high - low > 1;) {
    const int64_t middle = (low + high) / 2;
    (sorted.keys[middle] == row ? low : high) = middle;
  }
  const int64_t last = low / chunk;
  const int64_t inner = partial.inner;
  const int64_t step = int64_t{gridDim.y} * blockDim.x * N;
  using Sums = device::Pack<W, N>;
  for (int64_t i = (int64_t{blockIdx.y} * blockDim.x + threadIdx.x) * N; i < outer * inner;
       i += step) {
    const int64_t o = i / inner;
    const int64_t column = i - o * inner;
    Sums sum = *reinterpret_cast<const Sums*>(partial.begins(o, c) + column);
#pragma unroll 4
    for (int64_t d = c + 1; d <= last; ++d) {
      const Sums more = *reinterpret_cast<const Sums*>(partial.came(o, d) + column);
#pragma unroll
      for (int k = 0; k < N; ++k) sum.at[k] += more.at[k];
    }
    store_pack<N>(dx + (o * extent + row) * inner + column, sum.at);
  }
}

/// Fills rows that no index names with zeros; a warp a row, which it looks for among the keys.
template <class T, int N>
__global__ void __launch_bounds__(threads)
    zero_rows_kernel(Sorted sorted, T* dx, int64_t outer, unsigned extent, int64_t inner) {
  const unsigned row = blockIdx.x * (threads / warp) + threadIdx.x / warp,
                 lane = threadIdx.x % warp;
  if (row >= extent) return;
  int64_t low = 0;  // the first key that may be as large
  for (int64_t high = sorted.count; low < high;) {
    const int64_t step = ceil_div(high - low, int64_t{warp}), at = low + lane * step;
    const bool smaller = at < high && sorted.keys[at] < row;
    const int64_t count = __popc(__ballot_sync(0xffffffffU, smaller));
    high = min(high, low + count * step);
    if (count > 0) low += (count - 1) * step + 1;
  }
  if (low < sorted.count && sorted.keys[low] == row) return;
  const device::Pack<T, N> zeros = {};
  for (int64_t o = 0; o < outer; ++o) {
    auto* const to = reinterpret_cast<device::Pack<T, N>*>(dx + (o * extent + row) * inner);
    for (int64_t p = lane; p < inner / N; p += warp) to[p] = zeros;
  }
}

/// Positions in the order of their indices, in device memory.
struct Order {
  Tensor keys, positions;
};

Order sort(const Tensor& indices, int64_t extent, int64_t skip, Stream stream) {
  const int64_t count = indices.numel();
  const Device device = indices.device();
  const auto words = [&] { return Tensor::empty({count}, i32, device); };
  const Tensor keys = words(), positions = words();
  const Order sorted{words(), words()};
  const auto data = [](const Tensor& t) { return reinterpret_cast<unsigned*>(t.data<int32_t>()); };
  visit_index("index_select_backward", indices.dtype(), [&]<class Index>(Type<Index>) {
    prepare_kernel<<<grid_size(count, threads, device), threads, 0, native(stream)>>>(
        pointer<Index>(indices), data(keys), data(positions), count, extent, skip);
  });
  BS_CUDA_CHECK_LAUNCH("index_select_backward");
  const int bits = std::bit_width(static_cast<uint64_t>(extent));
  const auto run = [&](void* space, size_t& bytes) {
    BS_CUDA_CHECK(cub::DeviceRadixSort::SortPairs(
        space, bytes, data(keys), data(sorted.keys), data(positions), data(sorted.positions),
        static_cast<int>(count), 0, bits, native(stream)));
  };
  size_t bytes = 0;
  run(nullptr, bytes);
  const Tensor space = Tensor::empty({static_cast<int64_t>(bytes)}, u8, device);
  run(space.data(), bytes);
  return sorted;
}

}  // namespace

void index_select_backward(const Tensor& dy, const Tensor& indices, const Tensor& dx, int64_t skip,
                           Stream stream) {
  const int64_t outer = dx.size(0), extent = dx.size(1), inner = dx.size(2);
  const int64_t count = dy.size(1);
  BS_CHECK(std::max(extent, count) < std::numeric_limits<int32_t>::max(),
           "index_select_backward: {} indices into {} rows are too many", count, extent);
  // Long rows that no index names get zeros one by one, since the others are written once then.
  constexpr int64_t long_row = 512;  // bytes
  const bool by_rows = inner * static_cast<int64_t>(size_of(dx.dtype())) >= long_row;
  if (!by_rows) fill_zero(dx.data(), dx.bytes(), stream);
  const Order order = sort(indices, extent, skip, stream);
  const Sorted sorted{reinterpret_cast<const unsigned*>(order.keys.data<int32_t>()),
                      reinterpret_cast<const unsigned*>(order.positions.data<int32_t>()), count};
  const int64_t chunks = ceil_div(count, chunk);
  visit_floating("index_select_backward", dy.dtype(), [&]<class T>(Type<T>) {
    using D = device_type<T>;
    using W = wide<D>;
    const Tensor sums = Tensor::empty({outer, chunks, 2, inner}, dtype_of<W>, dy.device());
    const Partial<W> partial{sums.data<W>(), chunks, inner};
    visit_pack<T>(aligned16(dy, dx), inner, [&]<int N>(std::integral_constant<int, N>) {
      const int64_t packs = outer * inner / N;
      const auto across =
          static_cast<unsigned>(std::min<int64_t>(threads, ceil_div(packs, 32) * 32));
      const dim3 grid(static_cast<unsigned>(chunks),
                      static_cast<unsigned>(std::min<int64_t>(ceil_div(packs, across), 65535)));
      const auto rows = static_cast<unsigned>(extent);
      if (by_rows)
        zero_rows_kernel<D, N>
            <<<grid_of("index_select_backward", ceil_div(extent, threads / warp)), threads, 0,
               native(stream)>>>(sorted, pointer<T>(dx), outer, rows, inner);
      sum_chunks_kernel<D, N><<<grid, across, 0, native(stream)>>>(pointer<T>(dy), sorted, partial,
                                                                   pointer<T>(dx), outer, rows);
      join_chunks_kernel<D, N>
          <<<grid, across, 0, native(stream)>>>(sorted, partial, pointer<T>(dx), outer, rows);
    });
  });
  BS_CUDA_CHECK_LAUNCH("index_select_backward");
}

}  // namespace bs::cuda
