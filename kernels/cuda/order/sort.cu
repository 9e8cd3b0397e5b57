#include <bs/kernels/copy.h>
#include <bs/kernels/cuda/order/sort_pairs.h>
#include <bs/kernels/cuda/order/topk.h>
#include <bs/kernels/sort.h>
#include <bs/lib/cuda/launch.h>
#include <bs/kernels/cuda/order/sort_key.cuh>

#include <cub/block/block_radix_sort.cuh>

#include <bit>
#include <limits>
#include <utility>

namespace bs::cuda {

// A few of a row are selected (topk.h). Rows of up to 4096 values of at most 32 bits are sorted on
// the chip, by a block each; a block ranks several short ones. A single long row is sorted by keys
// as short as its values. One radix sort of 64-bit keys serves all others. A key holds the row
// above the value where both fit; else the values are sorted first, and then, since the sort is
// stable, the rows.

namespace {

constexpr int threads = 256;

template <class T>
__global__ void key_kernel(const T* x, uint64_t* keys, uint32_t* positions, int64_t n,
                           int64_t count, bool descending) {
  const int64_t step = int64_t{gridDim.x} * blockDim.x;
  for (int64_t e = int64_t{blockIdx.x} * blockDim.x + threadIdx.x; e < count; e += step) {
    const uint64_t key = key_of(x[e]);
    if constexpr (sizeof(T) == 8) {
      keys[e] = descending ? ~key : key;
    } else {
      const auto row = static_cast<uint64_t>(e / n);
      keys[e] = row << 32 | (descending ? ~static_cast<uint32_t>(key) : key);
    }
    positions[e] = static_cast<uint32_t>(e);
  }
}

__global__ void row_kernel(const uint32_t* positions, uint64_t* keys, int64_t n, int64_t count) {
  const int64_t step = int64_t{gridDim.x} * blockDim.x;
  for (int64_t e = int64_t{blockIdx.x} * blockDim.x + threadIdx.x; e < count; e += step)
    keys[e] = positions[e] / static_cast<uint64_t>(n);
}

/// The first k of each row of n sorted positions.
__global__ void index_kernel(const uint32_t* positions, int64_t* indices, int64_t n, int64_t k,
                             int64_t count) {
  const int64_t step = int64_t{gridDim.x} * blockDim.x;
  for (int64_t e = int64_t{blockIdx.x} * blockDim.x + threadIdx.x; e < count; e += step)
    indices[e] = positions[e / k * n + e % k] % n;
}

template <class T>
__global__ void value_key_kernel(const T* x, uint32_t* keys, int64_t count, bool descending) {
  const int64_t step = int64_t{gridDim.x} * blockDim.x;
  for (int64_t e = int64_t{blockIdx.x} * blockDim.x + threadIdx.x; e < count; e += step) {
    const auto key = static_cast<uint32_t>(key_of(x[e]));
    keys[e] = descending ? ~key : key;
  }
}

/// Places of the first k of each row of n keys, by the bits from `low` on. What fills the row up to
/// a whole number of items has the last key there is, and comes behind all that has it too.
template <int items>
__global__ void __launch_bounds__(threads)
    sort_row_kernel(const uint32_t* keys, int64_t* indices, int n, int k, int low) {
  using Sort = cub::BlockRadixSort<uint32_t, threads, items, uint16_t>;
  __shared__ typename Sort::TempStorage storage;
  const uint32_t* const row = keys + int64_t{blockIdx.x} * n;
  uint32_t key[items];
  uint16_t place[items];
#pragma unroll
  for (int i = 0; i < items; ++i) {
    const int at = static_cast<int>(threadIdx.x) * items + i;
    key[i] = at < n ? row[at] : 0xffffffffU;
    place[i] = static_cast<uint16_t>(at);
  }
  Sort(storage).SortBlockedToStriped(key, place, low, 32);
#pragma unroll
  for (int i = 0; i < items; ++i) {
    const int at = i * threads + static_cast<int>(threadIdx.x);
    if (at < k) indices[int64_t{blockIdx.x} * k + at] = place[i];
  }
}

constexpr int64_t longest_row = 16 * threads;        ///< that a block sorts
constexpr int64_t longest_ranked_row = threads / 2;  ///< of which a block takes several

/// The same for short rows, as many as a block has threads for: a thread counts the keys of its row
/// that come before its own.
__global__ void __launch_bounds__(threads)
    rank_rows_kernel(const uint32_t* keys, int64_t* indices, int64_t rows, int n, int k) {
  __shared__ uint32_t block_keys[threads];
  const int thread = static_cast<int>(threadIdx.x);
  const int row = thread / n, place = thread - row * n, held = threads / n;
  const int64_t first = int64_t{blockIdx.x} * held;
  const bool inside = row < held && first + row < rows;
  const uint32_t key = inside ? keys[first * n + thread] : 0;
  block_keys[thread] = key;
  __syncthreads();
  if (!inside) return;
  const uint32_t* const others = block_keys + row * n;
  int rank = 0;
#pragma unroll 8
  for (int i = 0; i < n; ++i) rank += others[i] < key || (others[i] == key && i < place);
  if (rank < k) indices[(first + row) * k + rank] = place;
}

void sort_rows(const Tensor& x, const Tensor& indices, bool descending, Stream stream) {
  const int64_t rows = x.size(0), count = x.numel();
  const auto n = static_cast<int>(x.size(1)), k = static_cast<int>(indices.size(1));
  const Tensor keys = Tensor::empty({count}, i32, x.device());
  auto* const key_data = static_cast<uint32_t*>(keys.data());
  visit_any(x.dtype(), [&]<class T>(Type<T>) {
    value_key_kernel<<<grid_size(count, threads, x.device()), threads, 0, native(stream)>>>(
        pointer<T>(x), key_data, count, descending);
  });
  const int low = lowest_key_bit(x.dtype());
  const auto run = [&](auto kernel) {
    kernel<<<static_cast<unsigned>(rows), threads, 0, native(stream)>>>(
        key_data, indices.data<int64_t>(), n, k, low);
  };
  if (n <= longest_ranked_row) {
    rank_rows_kernel<<<static_cast<unsigned>(ceil_div(rows, threads / n)), threads, 0,
                       native(stream)>>>(key_data, indices.data<int64_t>(), rows, n, k);
    return;
  }
  if (n <= 4 * threads) return run(sort_row_kernel<4>);
  if (n <= 8 * threads) return run(sort_row_kernel<8>);
  run(sort_row_kernel<16>);
}

/// Rows that no block sorts: 64-bit keys hold the row above the value where both fit.
Tensor sort_long_rows(const Tensor& x, bool descending, Stream stream) {
  const int64_t rows = x.size(0), n = x.size(1), count = x.numel();
  const auto room = [&] {
    return KeyedPositions::of(Tensor::empty({count}, i32, x.device()), sizeof(uint64_t));
  };
  KeyedPositions pairs = room(), sorted = room();
  const auto keys = [&] { return static_cast<uint64_t*>(pairs.keys.data()); };
  const auto positions = [&] { return static_cast<uint32_t*>(pairs.positions.data()); };
  const auto sort = [&](int bits) {
    sort_pairs(pairs, sorted, 0, bits, stream);
    std::swap(pairs, sorted);
  };
  const unsigned blocks = grid_size(count, threads, x.device());
  visit_any(x.dtype(), [&]<class T>(Type<T>) {
    key_kernel<<<blocks, threads, 0, native(stream)>>>(pointer<T>(x), keys(), positions(), n, count,
                                                       descending);
  });
  const int row_bits = std::bit_width(static_cast<uint64_t>(rows - 1));
  if (size_of(x.dtype()) < 8) {
    sort(32 + row_bits);
    return pairs.positions;
  }
  sort(64);
  row_kernel<<<blocks, threads, 0, native(stream)>>>(positions(), keys(), n, count);
  sort(row_bits);
  return pairs.positions;
}

}  // namespace

void argsort(const Tensor& x, const Tensor& indices, bool descending, Stream stream) {
  const int64_t rows = x.size(0), n = x.size(1), count = x.numel(), k = indices.size(1);
  BS_CHECK(count < std::numeric_limits<int32_t>::max(), "argsort: {} elements are too many", count);
  if (selects_first(x.dtype(), n, k)) return select_first(x, indices, descending, stream);
  if (size_of(x.dtype()) <= 4 && n <= longest_row) {
    sort_rows(x, indices, descending, stream);
    BS_CUDA_CHECK_LAUNCH("argsort");
    return;
  }
  Tensor order;
  if (rows == 1) {
    order = Tensor::empty({count}, i32, x.device());
    sort_all(x, order, descending, stream);
  } else {
    order = sort_long_rows(x, descending, stream);
  }
  const int64_t results = indices.numel();
  index_kernel<<<grid_size(results, threads, x.device()), threads, 0, native(stream)>>>(
      static_cast<const uint32_t*>(order.data()), indices.data<int64_t>(), n, k, results);
  BS_CUDA_CHECK_LAUNCH("argsort");
}

void kthvalue(const Tensor& x, const Tensor& indices, int64_t k, Stream stream) {
  if (selects_number(x.dtype(), x.size(1))) return select_number(x, indices, k - 1, stream);
  const Tensor first = Tensor::empty({x.size(0), k}, i64, x.device());
  argsort(x, first, false, stream);
  copy(first.slice(1, k - 1, k), indices, stream);
}

}  // namespace bs::cuda
