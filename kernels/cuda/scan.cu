#include <bs/kernels/scan.h>
#include <bs/lib/cuda/grid.h>
#include <bs/kernels/cuda/rows.cuh>
#include <bs/kernels/cuda/scan_threads.cuh>
#include <bs/kernels/cuda/scan_tiles.cuh>

#include <cub/block/block_scan.cuh>

namespace bs::cuda {

// A block takes some short rows, a row that it holds, or tile by tile a longer one or some
// neighbouring columns. Where the latter are too few to fill the GPU, each is cut into chunks, a
// block each: their totals are found first and scanned in turn; then each chunk starts from the
// total of those before. So the order of additions depends on the extents alone.

namespace {

using device::Raw;
using device::wide;

constexpr int threads = 256;
constexpr int64_t enough_rows = 512;  ///< not cut

/// Neighbours that a thread takes: 16 bytes of them, so that a warp's lie side by side.
template <class T>
inline constexpr int items = 16 / static_cast<int>(sizeof(T));
template <class T>
inline constexpr int64_t tile = int64_t{items<T>} * threads;

/// A row as the scan goes through it, from its end where `reverse`. `packed` rows begin, and end,
/// where vectors do.
struct Direction {
  int64_t n;
  bool reverse, packed;

  template <class T, int N = items<T>>
  __device__ void load(const T* row, int64_t k, wide<T> identity, wide<T> (&values)[N]) const {
    if (packed && k < n) {
      const auto raw = *reinterpret_cast<const Raw<T, N>*>(row + (reverse ? n - N - k : k));
      device::widen_pack<T, N>(raw, values);
      if (reverse) turn(values);
      return;
    }
#pragma unroll
    for (int i = 0; i < N; ++i)
      values[i] = k + i < n ? device::widen(row[reverse ? n - 1 - k - i : k + i]) : identity;
  }
  template <class T, int N = items<T>>
  __device__ void store(T* row, int64_t k, wide<T> (&values)[N]) const {
    if (packed) {
      if (k >= n) return;
      if (reverse) turn(values);
      const auto out = device::narrow_pack<T, N>(values);
      *reinterpret_cast<Raw<T, N>*>(row + (reverse ? n - N - k : k)) =
          reinterpret_cast<const Raw<T, N>&>(out);
      return;
    }
#pragma unroll
    for (int i = 0; i < N; ++i)
      if (k + i < n) row[reverse ? n - 1 - k - i : k + i] = device::narrow<T>(values[i]);
  }

 private:
  template <class W, int N>
  __device__ static void turn(W (&values)[N]) {
#pragma unroll
    for (int i = 0; i < N / 2; ++i) {
      const W first = values[i];
      values[i] = values[N - 1 - i];
      values[N - 1 - i] = first;
    }
  }
};

/// Chunk blockIdx.x of row blockIdx.y and on: its scan to y, starting from the carries of the
/// chunks before; or, without y, its total to `totals`.
template <class T, class Op>
__global__ void __launch_bounds__(threads)
    scan_kernel(const T* x, T* y, const wide<T>* carries, wide<T>* totals, int64_t rows,
                int64_t chunk, Direction direction) {
  using W = wide<T>;
  using Scan = cub::BlockScan<W, threads>;
  constexpr int N = items<T>;
  __shared__ typename Scan::TempStorage storage;
  constexpr W identity = Op::template identity<W>;
  const Op op;
  const int64_t n = direction.n, chunks = gridDim.x;
  for (int64_t r = blockIdx.y; r < rows; r += gridDim.y) {
    W running = carries && blockIdx.x > 0 ? carries[r * chunks + blockIdx.x - 1] : identity;
    const int64_t begin = blockIdx.x * chunk, end = begin + chunk < n ? begin + chunk : n;
    for (int64_t first = begin; first < end; first += tile<T>) {
      const int64_t k = first + threadIdx.x * N;
      W values[N];
      direction.load(x + r * n, k, identity, values);
#pragma unroll
      for (int i = 1; i < N; ++i) values[i] = op(values[i - 1], values[i]);
      W before, total;
      Scan(storage).ExclusiveScan(values[N - 1], before, identity, op, total);
      if (y) {
        before = op(running, before);
#pragma unroll
        for (W& value : values) value = op(before, value);
        direction.store(y + r * n, k, values);
      }
      running = op(running, total);
      __syncthreads();  // the next scan writes to the same storage
    }
    if (totals && threadIdx.x == 0) totals[r * chunks + blockIdx.x] = running;
  }
}

/// Rows that their threads hold: a row is that of some lanes, or of a block.
template <class T, class Op>
__global__ void __launch_bounds__(threads)
    scan_held_kernel(const T* x, T* y, int64_t rows, Direction direction) {
  using W = wide<T>;
  constexpr int N = items<T>;
  constexpr Op op;
  const int64_t row = int64_t{blockIdx.x} * blockDim.y + threadIdx.y;
  const int64_t k = row < rows ? int64_t{threadIdx.x} * N : direction.n;
  W values[N];
  direction.load(x + row * direction.n, k, Op::template identity<W>, values);
#pragma unroll
  for (int i = 1; i < N; ++i) values[i] = op(values[i - 1], values[i]);
  const W before = scan_threads<false, Op>(values[N - 1]);
#pragma unroll
  for (W& value : values) value = op(before, value);
  direction.store(y + row * direction.n, k, values);
}

/// Numbers [P, warps] of a block, which each warp scans by itself: one a lane.
template <class W, int P, class Op>
class PlaneScan {
 public:
  /// Of the inclusive scans over the lanes of P planes: what comes before the thread in each.
  __device__ void scan(const W (&of_lanes)[P], W (&before)[P]) {
    constexpr Op op;
    constexpr W identity = Op::template identity<W>;
    constexpr unsigned last = 31, all = 0xffffffffU, warps = threads / 32;
    const unsigned lane = threadIdx.x % 32, own = threadIdx.x / 32;
    if (lane == last) {
#pragma unroll
      for (unsigned p = 0; p < P; ++p) of_warp_[p * warps + own] = of_lanes[p];
    }
    __syncthreads();
    W sum = lane < P * warps ? of_warp_[lane] : identity;
#pragma unroll
    for (unsigned offset = 1; offset < 32; offset *= 2) {
      const W other = __shfl_up_sync(all, sum, offset);
      if (lane >= offset) sum = op(other, sum);
    }
#pragma unroll
    for (unsigned p = 0; p < P; ++p) {
      const unsigned at = p * warps + own;
      W of_warps = __shfl_sync(all, sum, at > 0 ? at - 1 : 0);
      if (at == 0) of_warps = identity;
      W of_others = __shfl_up_sync(all, of_lanes[p], 1);
      if (lane == 0) of_others = identity;
      before[p] = op(of_warps, of_others);
    }
  }

 private:
  static_assert(P * threads <= 32 * 32);
  W of_warp_[32];
};

/// A row a block, which holds it: P planes of vectors, so that all of it is on its way at once.
template <class T, int P, class Op>
__global__ void __launch_bounds__(threads)
    scan_planes_kernel(const T* x, T* y, Direction direction) {
  using W = wide<T>;
  constexpr int N = items<T>;
  constexpr Op op;
  __shared__ PlaneScan<W, P, Op> shared;
  const T* const from = x + blockIdx.x * direction.n;
  T* const to = y + blockIdx.x * direction.n;
  const auto place = [](int p) { return int64_t{p} * tile<T> + threadIdx.x * N; };
  W values[P][N], of_lanes[P], before[P];
#pragma unroll
  for (int p = 0; p < P; ++p) direction.load(from, place(p), Op::template identity<W>, values[p]);
#pragma unroll
  for (int p = 0; p < P; ++p) {
#pragma unroll
    for (int i = 1; i < N; ++i) values[p][i] = op(values[p][i - 1], values[p][i]);
    of_lanes[p] = values[p][N - 1];
#pragma unroll
    for (unsigned offset = 1; offset < 32; offset *= 2) {
      const W other = __shfl_up_sync(0xffffffffU, of_lanes[p], offset);
      if (threadIdx.x % 32 >= offset) of_lanes[p] = op(other, of_lanes[p]);
    }
  }
  shared.scan(of_lanes, before);
#pragma unroll
  for (int p = 0; p < P; ++p) {
#pragma unroll
    for (W& value : values[p]) value = op(before[p], value);
    direction.store(to, place(p), values[p]);
  }
}

/// Matrices [n, inner] whose columns are scanned; a block takes blockDim.x packs of them.
struct Columns {
  int64_t n, inner, groups;  ///< of columns
  int64_t chunk, chunks;     ///< rows of a chunk, and chunks of a column
  bool reverse;

  /// Where the row that the scan comes to after k others begins.
  __device__ int64_t row(int64_t matrix, int64_t k) const {
    return (matrix * n + (reverse ? n - 1 - k : k)) * inner;
  }
};

constexpr int warp = 32;
constexpr int column_threads = 256;      ///< of a block, at most
constexpr int rows_each = 4;             ///< of a thread, in a tile
constexpr int64_t enough_groups = 128;   ///< not cut
constexpr int64_t few_tiles = 16;        ///< neither
constexpr int64_t column_blocks = 1024;  ///< that columns are cut for

/// What a thread's columns come to before its rows of a tile, and with all rows of the tile. Lanes
/// that are blockDim.x apart have rows of the same columns.
template <class W, int N, class Op>
class ColumnScan {
 public:
  /// @param total of the thread's rows; afterwards of the rows before them
  /// @param running of the tiles before; afterwards of this one too
  __device__ void scan(int turn, W (&total)[N], W (&running)[N]) {
    constexpr Op op;
    const unsigned width = blockDim.x, thread = threadIdx.y * width + threadIdx.x;
    const unsigned lane = thread % warp, own = thread / warp;
    for (unsigned offset = width; offset < warp; offset *= 2)
#pragma unroll
      for (int i = 0; i < N; ++i) {
        const W above = __shfl_up_sync(0xffffffffU, total[i], offset);
        if (lane >= offset) total[i] = op(above, total[i]);
      }
    if (lane >= warp - width) {
#pragma unroll
      for (int i = 0; i < N; ++i) of_warp_[turn][own][threadIdx.x][i] = total[i];
    }
    W before[N];
#pragma unroll
    for (int i = 0; i < N; ++i) {
      before[i] = __shfl_up_sync(0xffffffffU, total[i], width);
      if (lane < width) before[i] = Op::template identity<W>;
    }
    __syncthreads();
    const unsigned warps = blockDim.y * width / warp;
    add_warps(turn, 0, own, running);
#pragma unroll
    for (int i = 0; i < N; ++i) total[i] = op(running[i], before[i]);
    add_warps(turn, own, warps, running);
  }

 private:
  W of_warp_[2][column_threads / warp][warp][N];  ///< in turns, so that one barrier does

  __device__ void add_warps(int turn, unsigned first, unsigned last, W (&running)[N]) const {
    for (unsigned w = first; w < last; ++w)
#pragma unroll
      for (int i = 0; i < N; ++i) running[i] = Op()(running[i], of_warp_[turn][w][threadIdx.x][i]);
  }
};

/// A chunk of a group of columns: as scan_kernel does of a row. The next tile is loaded meanwhile.
template <class T, int N, class Op>
__global__ void __launch_bounds__(column_threads, 2)
    scan_columns_kernel(const T* x, T* y, const wide<T>* carries, wide<T>* totals,
                        const __grid_constant__ Columns of) {
  using W = wide<T>;
  constexpr W identity = Op::template identity<W>;
  constexpr Op op;
  __shared__ ColumnScan<W, N, Op> shared;
  const int64_t group = blockIdx.x / of.chunks, chunk = blockIdx.x % of.chunks;
  const int64_t matrix = group / of.groups;
  const int64_t column = (group % of.groups * blockDim.x + threadIdx.x) * N;
  const bool is_column = column < of.inner;
  const int64_t begin = chunk * of.chunk;
  const int64_t end = begin + of.chunk < of.n ? begin + of.chunk : of.n;
  Raw<T, N> raw[rows_each];
  const auto load = [&](int64_t first) {
#pragma unroll
    for (int r = 0; r < rows_each; ++r)
      if (is_column && first + r < end)
        raw[r] = *reinterpret_cast<const Raw<T, N>*>(x + of.row(matrix, first + r) + column);
  };
  const int64_t of_chunk = (matrix * of.chunks + chunk) * of.inner + column;
  W running[N];
#pragma unroll
  for (int i = 0; i < N; ++i)
    running[i] = carries && chunk > 0 && is_column ? carries[of_chunk - of.inner + i] : identity;
  int64_t first = begin + threadIdx.y * rows_each;
  load(first);
  const int64_t tile = int64_t{blockDim.y} * rows_each;
  int turn = 0;
  for (int64_t tiles = ceil_div(end - begin, tile); tiles > 0; --tiles, turn ^= 1, first += tile) {
    W values[rows_each][N], before[N];
#pragma unroll
    for (int r = 0; r < rows_each; ++r) {
      device::widen_pack<T, N>(raw[r], values[r]);
#pragma unroll
      for (int i = 0; i < N; ++i) {
        if (!is_column || first + r >= end) values[r][i] = identity;
        if (r > 0) values[r][i] = op(values[r - 1][i], values[r][i]);
        before[i] = values[r][i];
      }
    }
    load(first + tile);
    shared.scan(turn, before, running);
#pragma unroll
    for (int r = 0; r < rows_each; ++r) {
#pragma unroll
      for (int i = 0; i < N; ++i) values[r][i] = op(before[i], values[r][i]);
      if (y && is_column && first + r < end)
        store_pack<N>(y + of.row(matrix, first + r) + column, values[r]);
    }
  }
  if (totals && threadIdx.y == 0 && is_column) {
#pragma unroll
    for (int i = 0; i < N; ++i) totals[of_chunk + i] = running[i];
  }
}

/// A thread a pack of columns, where these are many.
template <class T, int N, class Op>
__global__ void __launch_bounds__(threads)
    scan_packs_kernel(const T* x, T* y, int64_t packs, const __grid_constant__ Columns of) {
  using W = wide<T>;
  constexpr int ahead = 8;  // loads on their way
  constexpr Op op;
  const int64_t pack = int64_t{blockIdx.x} * threads + threadIdx.x, each = of.inner / N;
  if (pack >= packs) return;
  const int64_t matrix = pack / each, column = pack % each * N;
  W running[N];
#pragma unroll
  for (W& value : running) value = Op::template identity<W>;
  for (int64_t k = 0; k < of.n; k += ahead) {
    Raw<T, N> raw[ahead];
#pragma unroll
    for (int u = 0; u < ahead; ++u)
      if (k + u < of.n)
        raw[u] = *reinterpret_cast<const Raw<T, N>*>(x + of.row(matrix, k + u) + column);
#pragma unroll
    for (int u = 0; u < ahead; ++u) {
      if (k + u >= of.n) break;
      W values[N];
      device::widen_pack<T, N>(raw[u], values);
#pragma unroll
      for (int i = 0; i < N; ++i) running[i] = op(running[i], values[i]);
      store_pack<N>(y + of.row(matrix, k + u) + column, running);
    }
  }
}

template <class Op, class T>
void scan(const Tensor& x, const Tensor& y, bool reverse, Stream stream);

/// The totals of chunks so far, scanned along the axis of the chunks.
template <class Op, class W>
Tensor carries_of(const Tensor& totals, Stream stream) {
  const Tensor carries = Tensor::empty_like(totals);
  scan<Op, W>(totals, carries, false, stream);
  return carries;
}

template <class Op, class T>
void scan_rows(const Tensor& x, const Tensor& y, bool reverse, Stream stream) {
  using D = device_type<T>;
  using W = wide<D>;
  const int64_t rows = x.size(0), n = x.size(1);
  const int64_t chunks = rows >= enough_rows ? 1 : ceil_div(n, tile<D>);
  const int64_t chunk = chunks == 1 ? n : tile<D>;
  const Direction direction{n, reverse, n % items<D> == 0 && aligned16(x, y)};
  if (n <= tile<D>) {
    const dim3 block = row_of_threads(n, items<D>);
    scan_held_kernel<D, Op><<<grid_of("scan", ceil_div(rows, block.y)), block, 0, native(stream)>>>(
        pointer<T>(x), pointer<T>(y), rows, direction);
    return;
  }
  constexpr int most_planes = sizeof(W) == 8 ? 2 : 4;  // which registers have room for
  if (n <= most_planes * tile<D>) {
    const auto kernel =
        n <= 2 * tile<D> ? scan_planes_kernel<D, 2, Op> : scan_planes_kernel<D, most_planes, Op>;
    kernel<<<grid_of("scan", rows), threads, 0, native(stream)>>>(pointer<T>(x), pointer<T>(y),
                                                                  direction);
    return;
  }
  const dim3 grid(static_cast<unsigned>(chunks),
                  static_cast<unsigned>(std::min<int64_t>(rows, 65535)));
  Tensor carries;
  if (chunks > 1) {
    const Tensor totals = Tensor::empty({rows, chunks, 1}, dtype_of<W>, x.device());
    scan_kernel<D, Op><<<grid, threads, 0, native(stream)>>>(
        pointer<T>(x), nullptr, nullptr, totals.data<W>(), rows, chunk, direction);
    carries = carries_of<Op, W>(totals, stream);
  }
  scan_kernel<D, Op><<<grid, threads, 0, native(stream)>>>(
      pointer<T>(x), pointer<T>(y), maybe<W>(carries), nullptr, rows, chunk, direction);
}

template <class Op, int N, class T>
void scan_columns(const Tensor& x, const Tensor& y, bool reverse, Stream stream) {
  using D = device_type<T>;
  using W = wide<D>;
  constexpr int64_t enough_packs = int64_t{1} << 16;  // a thread each
  const int64_t matrices = x.size(0), n = x.size(1), inner = x.size(2), packs = inner / N;
  unsigned width = 1;  // threads side by side, and one below the other
  while (width < warp && width < packs) width *= 2;
  unsigned height = warp / width;
  while (height < column_threads / width && height * rows_each < n) height *= 2;
  const int64_t groups = ceil_div(packs, width), tile = height * rows_each;
  const bool cut = matrices * groups < enough_groups && n > few_tiles * tile;
  const int64_t chunk = cut ? round_up(ceil_div(n * matrices * groups, column_blocks), tile) : n;
  const Columns columns{n, inner, groups, chunk, ceil_div(n, chunk), reverse};
  if (matrices * packs >= enough_packs) {
    scan_packs_kernel<D, N, Op>
        <<<grid_of("scan", ceil_div(matrices * packs, threads)), threads, 0, native(stream)>>>(
            pointer<T>(x), pointer<T>(y), matrices * packs, columns);
    return;
  }
  if constexpr (N > 1)
    if (cut && scan_by_tiles<Op, N, T>(x, y, reverse, stream)) return;
  const dim3 block(width, height);
  const unsigned grid = grid_of("scan", matrices * groups * columns.chunks);
  Tensor carries;
  if (cut) {
    const Tensor totals = Tensor::empty({matrices, columns.chunks, inner}, dtype_of<W>, x.device());
    scan_columns_kernel<D, N, Op><<<grid, block, 0, native(stream)>>>(
        pointer<T>(x), nullptr, nullptr, totals.data<W>(), columns);
    carries = carries_of<Op, W>(totals, stream);
  }
  scan_columns_kernel<D, N, Op><<<grid, block, 0, native(stream)>>>(
      pointer<T>(x), pointer<T>(y), maybe<W>(carries), nullptr, columns);
}

template <class Op, class T>
void scan(const Tensor& x, const Tensor& y, bool reverse, Stream stream) {
  if (x.size(2) == 1) return scan_rows<Op, T>(x, y, reverse, stream);
  visit_pack<T>(aligned16(x, y), x.size(2), [&]<int N>(std::integral_constant<int, N>) {
    scan_columns<Op, N, T>(x, y, reverse, stream);
  });
}

template <class F>
void visit(const char* op, DType dtype, F&& f) {
  if (dtype == i64) return f(Type<int64_t>{});
  visit_floating(op, dtype, f);
}

}  // namespace

void cumsum(const Tensor& x, const Tensor& y, bool reverse, Stream stream) {
  visit("cumsum", x.dtype(), [&]<class T>(Type<T>) { scan<ScanSum, T>(x, y, reverse, stream); });
  BS_CUDA_CHECK_LAUNCH("cumsum");
}

void cumprod(const Tensor& x, const Tensor& y, Stream stream) {
  visit("cumprod", x.dtype(), [&]<class T>(Type<T>) { scan<ScanProduct, T>(x, y, false, stream); });
  BS_CUDA_CHECK_LAUNCH("cumprod");
}

}  // namespace bs::cuda
