#include <bs/kernels/cuda/attention/sparse_attention_lists.h>
#include <bs/lib/cuda/launch.h>
#include <bs/lib/integers.h>
#include <bs/kernels/cuda/descending_rank.cuh>

#include <cub/block/block_scan.cuh>

#include <algorithm>

namespace bs::cuda {

// A CTA has a tile of 128 queries. It marks the blocks of each of its block rows, a bit each, and
// finds three kinds of columns: those that both warpgroups keep, and those that one of them keeps.
// How many of a kind come before a column says in which record it goes. A tile's records begin
// where the blocks of its first row do: it has no more of them than its rows have blocks.

namespace {

constexpr int threads = 128;
constexpr int kinds = 3;

struct Shape {
  LayoutView v;
  int tiles, words;  ///< tiles of a head; of 32 bits, a bit a column
  int rows;          ///< block rows of a warpgroup
  int pieces;        ///< of a record
  AttentionReach reach;
};

/// How many columns of each kind, 21 bits each.
struct Counts {
  static constexpr int bits = 21;
  unsigned long long packed = 0;

  __device__ static Counts of(const uint32_t (&found)[kinds]) {
    Counts sum;
#pragma unroll
    for (int k = 0; k < kinds; ++k)
      sum.packed |= static_cast<unsigned long long>(__popc(found[k])) << (bits * k);
    return sum;
  }
  __device__ int operator[](int kind) const {
    return static_cast<int>(packed >> (bits * kind)) & ((1 << bits) - 1);
  }
};

/// Where the columns of a tile go. Records of columns that both keep come first, those of one take
/// turns with the other's, and what fills no record of its kind comes last, all kinds together.
struct Order {
  int pieces;
  int whole[kinds], begin[kinds];  ///< records of a kind; of the last ones, its first place
  int rest = 0;                    ///< columns of the last records

  __device__ Order(const Counts& all, int of_record) : pieces(of_record) {
#pragma unroll
    for (int k = 0; k < kinds; ++k) {
      whole[k] = all[k] / pieces;
      begin[k] = rest;
      rest += all[k] % pieces;
    }
  }
  __device__ int alone() const { return whole[0] + whole[1] + whole[2]; }
  __device__ int records() const { return alone() + (rest + pieces - 1) / pieces; }
  /// Products of the warpgroups, at most.
  __device__ int work() const { return records() + whole[0] + (rest + pieces - 1) / pieces; }
  /// The place of a column, counted over all records, before which so many others of its kind come.
  __device__ int place(int kind, int rank) const {
    const int record = rank / pieces;
    if (record >= whole[kind]) return alone() * pieces + begin[kind] + rank - whole[kind] * pieces;
    int at = record;
    if (kind == 1) at = whole[0] + record + min(record, whole[2]);
    if (kind == 2) at = whole[0] + record + min(record + 1, whole[1]);
    return at * pieces + rank % pieces;
  }
};

/// The first row of a tile's blocks; a layout's line is a block row of one of its heads.
__device__ int first_row(const Shape& s, int tile) {
  return static_cast<int>(static_cast<long long>(tile) * 128 / s.v.block);
}

/// Marks the columns of row `row` that its queries may see.
__device__ void mark(const Shape& s, int head, int row, uint32_t* bits) {
  const long long first = static_cast<long long>(row) * s.v.block;
  const long long least = first + s.reach.first, most = first + s.v.block - 1 + s.reach.last;
  const int* const offsets = s.v.row_offsets + static_cast<long long>(head) * s.v.rows + row;
  for (int n = offsets[0] + static_cast<int>(threadIdx.x); n < offsets[1]; n += threads) {
    const int col = s.v.col_of[n];
    const long long key = static_cast<long long>(col) * s.v.block;
    if (key <= most && key + s.v.block > least) atomicOr(bits + col / 32, 1U << col % 32);
  }
}

__global__ void __launch_bounds__(threads)
    tiles_kernel(Shape s, int32_t* records, int32_t* counts, int32_t* work) {
  using Scan = cub::BlockScan<unsigned long long, threads>;
  __shared__ typename Scan::TempStorage storage;
  extern __shared__ unsigned long long memory[];
  auto* const before = reinterpret_cast<Counts*>(memory);            // those of each word
  auto* const bits = reinterpret_cast<uint32_t*>(memory + s.words);  // [2, rows, words]
  const int head = static_cast<int>(blockIdx.x) / s.tiles;
  const int tile = static_cast<int>(blockIdx.x) % s.tiles;
  const int thread = static_cast<int>(threadIdx.x), first = first_row(s, tile);

  for (int w = thread; w < 2 * s.rows * s.words; w += threads) bits[w] = 0;
  __syncthreads();
  for (int of = 0; of < 2 * s.rows; ++of) {
    const int row = s.v.block > 64 ? first : first + of;  // of which both warpgroups have a half
    if (row < s.v.rows) mark(s, head, row, bits + of * s.words);
  }
  __syncthreads();

  const auto kept = [&](int group, int w) {
    uint32_t any = 0;
    for (int r = 0; r < s.rows; ++r) any |= bits[(group * s.rows + r) * s.words + w];
    return any;
  };
  const auto kinds_of = [&](int w, uint32_t(&found)[kinds]) {
    const uint32_t one = kept(0, w), other = kept(1, w);
    found[0] = one & other;
    found[1] = other & ~one;
    found[2] = one & ~other;
  };
  Counts all;
  for (int w0 = 0; w0 < s.words; w0 += threads) {
    const int w = w0 + thread;
    uint32_t found[kinds] = {};
    if (w < s.words) kinds_of(w, found);
    Counts at, sum;
    Scan(storage).ExclusiveSum(Counts::of(found).packed, at.packed, sum.packed);
    __syncthreads();  // before the storage is used again
    if (w < s.words) before[w].packed = all.packed + at.packed;
    all.packed += sum.packed;
  }

  const Order order(all, s.pieces);
  const int record = s.pieces + 2;
  const long long line = static_cast<long long>(head) * s.v.rows + first;
  records += static_cast<long long>(s.v.row_offsets[line]) * record;
  const int width = s.v.cols * s.v.block;
  for (int i = thread; i < order.records() * record; i += threads)
    records[i] = i % record < s.pieces ? width : 0;
  if (thread == 0) {
    counts[blockIdx.x] = order.records();
    work[blockIdx.x] = order.work();
  }
  __syncthreads();

  for (int w = thread; w < s.words; w += threads) {
    uint32_t found[kinds];
    kinds_of(w, found);
#pragma unroll
    for (int kind = 0; kind < kinds; ++kind) {
      int rank = before[w][kind];
      for (uint32_t left = found[kind]; left != 0; left &= left - 1) {
        const int bit = __ffs(static_cast<int>(left)) - 1;
        const int place = order.place(kind, rank++);
        int32_t* const to = records + place / s.pieces * record;
        const int piece = place % s.pieces;
        to[piece] = (w * 32 + bit) * s.v.block;
        for (int of = 0; of < 2 * s.rows; ++of)
          if ((bits[of * s.words + w] >> bit & 1) != 0)
            atomicOr(reinterpret_cast<unsigned*>(to + s.pieces + of / s.rows),
                     1U << (of % s.rows * s.pieces + piece));
      }
    }
  }
}

/// The tiles of each head, those with the most work first.
__global__ void __launch_bounds__(threads)
    items_kernel(Shape s, const int32_t* counts, const int32_t* work, int4* items) {
  const int tile = static_cast<int>(blockIdx.x) * threads + static_cast<int>(threadIdx.x);
  if (tile >= s.tiles) return;
  const long long head = blockIdx.y;
  const int rank = descending_rank(work + head * s.tiles, s.tiles, tile);
  const int begin = s.v.row_offsets[head * s.v.rows + first_row(s, tile)];
  items[head * s.tiles + rank] = make_int4(tile, begin, counts[head * s.tiles + tile], 0);
}

}  // namespace

void list_tiles(const LayoutView& v, const AttentionTiling& tiling, int tiles, int32_t* records,
                int32_t* items, Stream stream) {
  const int64_t all = int64_t{v.heads} * tiles;
  if (all == 0) return;
  const Shape s{.v = v,
                .tiles = tiles,
                .words = v.cols / 32 + 1,
                .rows = std::max(1, 64 / v.block),
                .pieces = tiling.pieces(v.block),
                .reach = {tiling.first, tiling.last}};
  const Tensor numbers = Tensor::empty({2, all}, i32, stream.device());
  int32_t* const counts = numbers.data<int32_t>();
  int32_t* const work = counts + all;
  const size_t shared = static_cast<size_t>(s.words) * (8 + 8 * static_cast<size_t>(s.rows));
  tiles_kernel<<<static_cast<unsigned>(all), threads, shared, native(stream)>>>(s, records, counts,
                                                                                work);
  const dim3 grid(static_cast<unsigned>(ceil_div(tiles, threads)), static_cast<unsigned>(v.heads));
  items_kernel<<<grid, threads, 0, native(stream)>>>(s, counts, work,
                                                     reinterpret_cast<int4*>(items));
  BS_CUDA_CHECK_LAUNCH("sparse_attention");
}

}  // namespace bs::cuda
