#include <bs/kernels/cuda/block_sparse/block_sparse_strips_fill.h>
#include <bs/lib/cuda/launch.h>
#include <bs/lib/integers.h>
#include <bs/kernels/cuda/descending_rank.cuh>

#include <cub/block/block_scan.cuh>
#include <cub/device/device_scan.cuh>

namespace bs::cuda {

namespace {

constexpr int threads = 256;

/// What a strip is made of: the rows of op(S), whatever order they are stored in.
struct Rows {
  const int32_t* offsets;
  const int32_t* col;
  const int32_t* number;  ///< null: blocks are numbered in this order
  const int32_t* listed;  ///< rows of strips; null: they follow each other
  int rows, words;        ///< block rows of a head; of 32 bits, a bit a column
  bool pairs;             ///< of columns stay together

  /// Row `i` of a strip of `side`, in its head; `rows` or beyond it where there is none.
  __device__ int row(int head, int strips, int strip, int side, int i) const {
    return listed == nullptr ? strip * side + i
                             : listed[(int64_t{head} * strips + strip) * side + i];
  }
};

/// Of a union's columns, a bit each, those of pairs that stay together, or the others.
struct Part {
  const uint32_t* bits;
  int32_t* before;  ///< [words], columns before those of each word
  bool pairs, of_pairs;

  __device__ uint32_t operator[](int w) const {
    const uint32_t both = pairs ? pairs_of(bits[w]) : 0;
    return of_pairs ? both : bits[w] & ~both;
  }
  /// Counts them, all threads together.
  __device__ int32_t count(int words) const {
    using Scan = cub::BlockScan<int32_t, threads>;
    __shared__ typename Scan::TempStorage storage;
    int32_t done = 0;
    for (int w0 = 0; w0 < words; w0 += threads) {
      const int w = w0 + static_cast<int>(threadIdx.x);
      int32_t at = 0, sum = 0;
      Scan(storage).ExclusiveSum(w < words ? __popc((*this)[w]) : 0, at, sum);
      __syncthreads();  // before the storage is used again
      if (w < words) before[w] = done + at;
      done += sum;
    }
    return done;
  }
  __device__ bool has(int32_t col) const { return ((*this)[col / 32] >> col % 32 & 1) != 0; }
  __device__ int32_t rank(int32_t col) const {
    return before[col / 32] + __popc((*this)[col / 32] & ((1U << col % 32) - 1));
  }
};

/// One CTA a strip: the union of its rows' columns as bits; the number of columns before each word;
/// and from these where each block goes.
__global__ void __launch_bounds__(threads)
    fill_kernel(Rows from, int side, int strips, const int32_t* offsets, int32_t* cols,
                int32_t* blocks) {
  extern __shared__ uint32_t bits[];
  auto* const before = reinterpret_cast<int32_t*>(bits + from.words);
  const Part pairs{bits, before, from.pairs, true};
  const Part others{bits, before + (from.pairs ? from.words : 0), from.pairs, false};
  const int head = static_cast<int>(blockIdx.x) / strips;
  const int strip = static_cast<int>(blockIdx.x) % strips;
  const int32_t* const rows = from.offsets + int64_t{head} * from.rows;
  const auto thread = static_cast<int>(threadIdx.x);

  for (int w = thread; w < from.words; w += threads) bits[w] = 0;
  const int32_t begin = offsets[blockIdx.x], size = offsets[blockIdx.x + 1] - begin;
  blocks += int64_t{begin} * side;
  for (int64_t i = thread; i < int64_t{size} * side; i += threads) blocks[i] = -1;
  __syncthreads();
  for (int at = 0; at < side; ++at) {
    const int row = from.row(head, strips, strip, side, at);
    if (row >= from.rows) continue;
    for (int32_t i = rows[row] + thread; i < rows[row + 1]; i += threads)
      atomicOr(bits + from.col[i] / 32, 1U << from.col[i] % 32);
  }
  __syncthreads();

  const int32_t in_pairs = from.pairs ? pairs.count(from.words) : 0;
  const PairOrder order(in_pairs, others.count(from.words));
  const auto place = [&](int32_t col) {
    if (in_pairs == 0) return others.rank(col);
    return pairs.has(col) ? order.of_pair(pairs.rank(col)) : order.of_other(others.rank(col));
  };
  __syncthreads();
  for (int w = thread; w < from.words; w += threads)
    for (uint32_t left = bits[w]; left != 0; left &= left - 1) {
      const int32_t col = w * 32 + __ffs(static_cast<int>(left)) - 1;
      cols[begin + place(col)] = col;
    }
  for (int at = 0; at < side; ++at) {
    const int row = from.row(head, strips, strip, side, at);
    if (row >= from.rows) continue;
    for (int32_t i = rows[row] + thread; i < rows[row + 1]; i += threads)
      blocks[int64_t{place(from.col[i])} * side + at] = from.number == nullptr ? i : from.number[i];
  }
}

/// One CTA a strip: how many columns its rows have together.
__global__ void __launch_bounds__(threads)
    count_kernel(Rows from, int side, int strips, int32_t* lengths) {
  extern __shared__ uint32_t bits[];
  __shared__ int found;
  const int head = static_cast<int>(blockIdx.x) / strips;
  const int strip = static_cast<int>(blockIdx.x) % strips;
  const int32_t* const rows = from.offsets + int64_t{head} * from.rows;
  const auto thread = static_cast<int>(threadIdx.x);
  for (int w = thread; w < from.words; w += threads) bits[w] = 0;
  if (thread == 0) found = 0;
  __syncthreads();
  int own = 0;
  for (int row = strip * side; row < min((strip + 1) * side, from.rows); ++row)
    for (int32_t i = rows[row] + thread; i < rows[row + 1]; i += threads) {
      const uint32_t bit = 1U << from.col[i] % 32;
      own += (atomicOr(bits + from.col[i] / 32, bit) & bit) == 0;
    }
  atomicAdd(&found, own);
  __syncthreads();
  if (thread == 0) lengths[blockIdx.x] = found;
}

/// The strips of each head, the longest first.
__global__ void __launch_bounds__(threads)
    order_kernel(int strips, const int32_t* lengths, int32_t* order) {
  const int strip = static_cast<int>(blockIdx.x) * threads + static_cast<int>(threadIdx.x);
  if (strip >= strips) return;
  const int first = static_cast<int>(blockIdx.y) * strips;
  order[first + descending_rank(lengths + first, strips, strip)] = first + strip;
}

Rows rows_of(const LayoutView& v, const StripShape& shape, const int32_t* listed) {
  const bool transposed = shape.transposed;
  return {.offsets = transposed ? v.col_offsets : v.row_offsets,
          .col = transposed ? v.transposed_row : v.col_of,
          .number = transposed ? v.transposed : nullptr,
          .listed = listed,
          .rows = transposed ? v.cols : v.rows,
          .words = (transposed ? v.rows : v.cols) / 32 + 1,
          .pairs = shape.pairs};
}

}  // namespace

void count_strips(const LayoutView& v, const StripShape& shape, int strips, int32_t* offsets,
                  int32_t* order, Stream stream) {
  const int64_t all = int64_t{v.heads} * strips;
  const Tensor lengths = Tensor::empty({all + 1}, i32, stream.device());
  fill_zero(lengths.data(), lengths.bytes(), stream);
  if (all > 0) {
    const Rows from = rows_of(v, shape, nullptr);
    count_kernel<<<static_cast<unsigned>(all), threads, static_cast<size_t>(from.words) * 4,
                   native(stream)>>>(from, shape.side, strips, lengths.data<int32_t>());
    const dim3 grid(static_cast<unsigned>(ceil_div(strips, threads)),
                    static_cast<unsigned>(v.heads));
    order_kernel<<<grid, threads, 0, native(stream)>>>(strips, lengths.data<int32_t>(), order);
  }
  const auto scan = [&](void* space, size_t& bytes) {
    BS_CUDA_CHECK(cub::DeviceScan::ExclusiveSum(space, bytes, lengths.data<int32_t>(), offsets,
                                                all + 1, native(stream)));
  };
  size_t bytes = 0;
  scan(nullptr, bytes);
  const Tensor space = Tensor::empty({static_cast<int64_t>(bytes)}, u8, stream.device());
  scan(space.data(), bytes);
  BS_CUDA_CHECK_LAUNCH("block_sparse_strips");
}

void fill_strips(const LayoutView& v, const StripShape& shape, const device::StripList& list,
                 int32_t* cols, int32_t* blocks, Stream stream) {
  const Rows from = rows_of(v, shape, list.rows);
  const auto grid = static_cast<unsigned>(v.heads * list.strips);
  const size_t shared = static_cast<size_t>(from.words) * (from.pairs ? 12 : 8);
  if (grid == 0) return;
  fill_kernel<<<grid, threads, shared, native(stream)>>>(from, shape.side, list.strips,
                                                         list.offsets, cols, blocks);
  BS_CUDA_CHECK_LAUNCH("block_sparse_strips");
}

}  // namespace bs::cuda
