#pragma once
// Scans of columns that are read once: tiles stay in registers until what comes before is known.
#include <bs/kernels/cuda/work_counter.h>
#include <bs/lib/cuda/grid.h>
#include <bs/kernels/cuda/rows.cuh>
#include <bs/kernels/cuda/walk.cuh>

#include <limits>

namespace bs::cuda {

/// Matrices [n, inner] in tiles of 256 rows and 16 packs of columns, a block each. A tile leaves
/// its total as soon as it has been read. It then adds up those of the tiles before, in their
/// order.
struct ColumnTiles {
  static constexpr int width = 16, height = 16;  ///< threads of a block
  static constexpr int rows_each = 16;           ///< of a thread
  static constexpr int rows = height * rows_each;
  static constexpr int threads = width * height;

  int64_t n = 0, inner = 0;
  Divisor lists, groups;  ///< of tiles, one below the other: of all matrices, and of one
  int chunks = 0;         ///< tiles of a list
  bool reverse = false;

  int64_t tiles() const { return int64_t{lists.number} * chunks; }
  /// Which tiles of a list have left their totals, a bit each.
  __host__ __device__ int words_of_list() const { return (chunks + 31) / 32; }
  /// Tiles that were taken, tiles that have seen all that they wait for, and the bits.
  __host__ __device__ int64_t words() const { return 2 + int64_t{lists.number} * words_of_list(); }

  /// Tiles as they are taken: those that come before in a list are before.
  struct Tile {
    int64_t matrix, column, list;
    int chunk;
  };
  __device__ Tile tile(uint32_t ticket) const {
    const uint32_t chunk = lists.divide(ticket), list = ticket - chunk * lists.number;
    const uint32_t matrix = groups.divide(list), group = list - matrix * groups.number;
    return {matrix, int64_t{group} * width, list, static_cast<int>(chunk)};
  }

  /// The tiles, where they are some, but not so many that adding up their totals takes longer.
  static bool make(ColumnTiles& tiles, const Tensor& x, int pack, bool reverse) {
    constexpr int64_t fewest = 4, most = 128;
    const int64_t packs = x.size(2) / pack, groups = ceil_div(packs, width);
    const int64_t chunks = ceil_div(x.size(1), rows), lists = x.size(0) * groups;
    if (packs < width || chunks < fewest || chunks > most || lists > WorkCounter::most)
      return false;
    tiles = {x.size(1), x.size(2), Divisor(lists), Divisor(groups), static_cast<int>(chunks),
             reverse};
    return tiles.words() <= WorkCounter::most;
  }
};

/// The counters of a launch, all zero before and after.
class TileCounters {
 public:
  __device__ TileCounters(unsigned* words, const ColumnTiles& tiles)
      : words_(words), tiles_(tiles) {}

  /// The number of the tile that the block takes; by all threads.
  __device__ unsigned take(unsigned thread) const {
    __shared__ unsigned ticket;
    if (thread == 0) ticket = atomicAdd(words_, 1U);
    __syncthreads();
    return ticket;
  }
  /// Tells what the block wrote.
  __device__ void publish(unsigned thread, int64_t list, int chunk) const {
    __threadfence();
    __syncthreads();
    if (thread == 0) atomicOr(bits(list) + chunk / 32, 1U << chunk % 32);
  }
  /// Waits until all tiles before `chunk` have published.
  __device__ void wait(unsigned thread, int64_t list, int chunk) const {
    if (const auto word = static_cast<int>(thread); word * 32 < chunk) {
      const unsigned wanted = chunk - word * 32 >= 32 ? ~0U : (1U << chunk % 32) - 1;
      const volatile unsigned* const from = bits(list) + word;
      while ((*from & wanted) != wanted) {
      }
      __threadfence();
    }
    __syncthreads();
  }
  /// The last block that has waited leaves zeros behind.
  __device__ void end(unsigned thread, unsigned threads) const {
    __shared__ bool is_last;
    if (thread == 0) is_last = atomicAdd(words_ + 1, 1U) == gridDim.x - 1;
    __syncthreads();
    if (!is_last) return;
    for (int64_t word = thread; word < tiles_.words(); word += threads) words_[word] = 0;
  }

 private:
  unsigned* words_;
  const ColumnTiles& tiles_;

  __device__ unsigned* bits(int64_t list) const {
    return words_ + 2 + list * tiles_.words_of_list();
  }
};

/// Numbers that a block adds up along its rows of threads.
template <class W, int N, class Op>
struct RowsOfThreads {
  device::Pack<W, N> of[ColumnTiles::height][ColumnTiles::width];

  /// What the rows before this thread's come to, and all of them.
  __device__ void scan(const device::Pack<W, N>& own, device::Pack<W, N>& before,
                       device::Pack<W, N>& all) {
    of[threadIdx.y][threadIdx.x] = own;
    __syncthreads();
#pragma unroll
    for (int i = 0; i < N; ++i) all.at[i] = Op::template identity<W>;
#pragma unroll 2
    for (unsigned y = 0; y < ColumnTiles::height; ++y) {
      if (y == threadIdx.y) before = all;
      const device::Pack<W, N> row = of[y][threadIdx.x];
#pragma unroll
      for (int i = 0; i < N; ++i) all.at[i] = Op()(all.at[i], row.at[i]);
    }
    __syncthreads();
  }
};

/// What other blocks wrote, which L1 may not know of.
template <class Numbers>
__device__ Numbers from_other_blocks(const Numbers* from) {
  constexpr int vectors = sizeof(Numbers) / 16;
  uint4 parts[vectors];
#pragma unroll
  for (int i = 0; i < vectors; ++i) parts[i] = __ldcg(reinterpret_cast<const uint4*>(from) + i);
  return reinterpret_cast<const Numbers&>(parts);
}

/// @param totals [lists, chunks, width, N]
template <class T, int N, class Op>
__global__ void __launch_bounds__(ColumnTiles::threads, 2)
    scan_tiles_kernel(const T* x, T* y, device::Pack<device::wide<T>, N>* totals, unsigned* words,
                      const __grid_constant__ ColumnTiles t) {
  using W = device::wide<T>;
  using Numbers = device::Pack<W, N>;
  constexpr Op op;
  constexpr int rows_each = ColumnTiles::rows_each, width = ColumnTiles::width;
  __shared__ RowsOfThreads<W, N, Op> shared;
  const unsigned thread = threadIdx.y * width + threadIdx.x;
  const TileCounters counters(words, t);
  const ColumnTiles::Tile tile = t.tile(counters.take(thread));
  const int64_t column = (tile.column + threadIdx.x) * N;
  const int64_t first = int64_t{tile.chunk} * ColumnTiles::rows + threadIdx.y * rows_each;
  const int64_t at = (tile.matrix * t.n + (t.reverse ? t.n - 1 - first : first)) * t.inner + column;
  const int64_t step = t.reverse ? -t.inner : t.inner;
  const int left = column < t.inner ? static_cast<int>(min(t.n - first, int64_t{rows_each})) : 0;
  const T* from = x + at;
  device::Raw<T, N> raw[rows_each];
#pragma unroll
  for (int r = 0; r < rows_each; ++r, from += step)
    if (r < left) raw[r] = *reinterpret_cast<const device::Raw<T, N>*>(from);
  Numbers own, running, all;
#pragma unroll
  for (int i = 0; i < N; ++i) own.at[i] = Op::template identity<W>;
#pragma unroll
  for (int r = 0; r < rows_each; ++r) {
    if (r >= left) break;
    W v[N];
    device::widen_pack<T, N>(raw[r], v);
#pragma unroll
    for (int i = 0; i < N; ++i) own.at[i] = op(own.at[i], v[i]);
  }
  shared.scan(own, running, all);
  Numbers* const of_list = totals + tile.list * t.chunks * width + threadIdx.x;
  if (threadIdx.y == 0) of_list[tile.chunk * width] = all;
  counters.publish(thread, tile.list, tile.chunk);
  counters.wait(thread, tile.list, tile.chunk);
  counters.end(thread, ColumnTiles::threads);
  // Each row of threads adds up a stretch of the tiles before.
  const int begin = tile.chunk * static_cast<int>(threadIdx.y) / ColumnTiles::height;
  const int end = tile.chunk * static_cast<int>(threadIdx.y + 1) / ColumnTiles::height;
  Numbers some, none;
#pragma unroll
  for (int i = 0; i < N; ++i) some.at[i] = Op::template identity<W>;
#pragma unroll 2
  for (int chunk = begin; chunk < end; ++chunk) {
    const Numbers of = from_other_blocks(of_list + chunk * width);
#pragma unroll
    for (int i = 0; i < N; ++i) some.at[i] = op(some.at[i], of.at[i]);
  }
  shared.scan(some, none, all);
#pragma unroll
  for (int i = 0; i < N; ++i) running.at[i] = op(all.at[i], running.at[i]);
  T* to = y + at;
#pragma unroll
  for (int r = 0; r < rows_each; ++r, to += step) {
    if (r >= left) break;
    W v[N];
    device::widen_pack<T, N>(raw[r], v);
#pragma unroll
    for (int i = 0; i < N; ++i) running.at[i] = op(running.at[i], v[i]);
    store_pack<N>(to, running.at);
  }
}

/// Scans columns by tiles, where they are made for that; says whether it has.
template <class Op, int N, class T>
bool scan_by_tiles(const Tensor& x, const Tensor& y, bool reverse, Stream stream) {
  using D = device_type<T>;
  using Numbers = device::Pack<device::wide<D>, N>;
  ColumnTiles tiles;
  if (N == 1 || !ColumnTiles::make(tiles, x, N, reverse)) return false;
  const WorkCounter counter(stream, static_cast<int>(tiles.words()));
  const int64_t bytes = tiles.tiles() * ColumnTiles::width * static_cast<int64_t>(sizeof(Numbers));
  const Tensor totals = Tensor::empty({bytes}, u8, x.device());
  scan_tiles_kernel<D, N, Op>
      <<<grid_of("scan", tiles.tiles()), dim3(ColumnTiles::width, ColumnTiles::height), 0,
         native(stream)>>>(pointer<T>(x), pointer<T>(y), static_cast<Numbers*>(totals.data()),
                           reinterpret_cast<unsigned*>(counter.get()), tiles);
  return true;
}

}  // namespace bs::cuda
