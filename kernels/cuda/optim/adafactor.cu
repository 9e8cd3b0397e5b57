#include <bs/kernels/adafactor_step.h>
#include <bs/kernels/cuda/device/tile/reduce.cuh>
#include <bs/kernels/cuda/optim/tensor_table.cuh>

#include <algorithm>

namespace bs::cuda {

// A step is five launches over tables of tensors: rows are summed and columns in part, columns are
// summed up, then directions are measured, then each tensor's length is known, and it is stepped.

namespace {

using device::narrow;
using device::wide;
using device::widen;

constexpr int threads = 256, warp = 32;
constexpr int64_t tile_elements = 8192, least_tile_rows = 16;

/// A parameter as a table holds it: as its matrices, each cut into tiles, which have whole rows, or
/// a piece of the only one. What would be divided on the device is divided here.
struct Tiled : Factored {
  void* value;
  const void* gradient;
  void *row, *column, *master;  ///< row and master may be null
  int64_t partial;              ///< where the sums of its tiles' columns begin
  int64_t tile_rows;
  int64_t share;  ///< columns of which a tile adds up the parts
  int tiles;      ///< of a matrix

  explicit Tiled(const AdafactorParameter& p)
      : Factored(p.value.shape()),
        value(p.value.data()),
        gradient(p.gradient.data()),
        row(address_of(p.row_variance)),
        column(column_variance(p).data()),
        master(address_of(p.master)),
        partial(0),
        tile_rows(std::max(least_tile_rows, tile_elements / columns)),
        tiles(static_cast<int>(has_rows ? ceil_div(rows, tile_rows)
                                        : ceil_div(columns, tile_elements))) {
    share = ceil_div(columns, tiles);
  }
  Tiled() = default;
};

/// Tensors of one dtype, and which of all tiles are whose.
struct TiledTable {
  static constexpr int capacity = 280;
  Tiled tensor[capacity];
  int first_tile[capacity + 1] = {};
  int count = 0;

  unsigned tiles() const { return static_cast<unsigned>(first_tile[count]); }
  __device__ int tensor_of(int tile) const {
    int low = 0, high = count - 1;
    while (low < high) {
      const int middle = (low + high + 1) / 2;
      (first_tile[middle] <= tile ? low : high) = first_tile[middle] <= tile ? middle : middle - 1;
    }
    return low;
  }
};
static_assert(sizeof(TiledTable) < 32000, "a kernel's arguments may have 32 KiB");

/// What a launch leaves for the next.
template <class W>
struct Scratch {
  W* partial;       ///< of each tile, the sums of its columns' squares
  double* squares;  ///< of each tile, the sums of squares of w and of u
  W* length;        ///< of each tensor
};

/// Rows [row, row_end) and columns [begin, end) of a matrix, with the addresses of that.
template <class T>
struct Tile {
  using W = wide<T>;
  int64_t columns, rows, row, row_end, begin, end;
  int number, of_matrix;  ///< this tile's among those of its matrix
  bool has_rows;
  T* value;
  const T* gradient;
  W *variance, *column, *master;  ///< variance: of rows

  __device__ Tile(const Tiled& p, int tile)
      : columns(p.columns),
        rows(p.rows),
        number(tile % p.tiles),
        of_matrix(p.tiles),
        has_rows(p.has_rows) {
    const int64_t matrix = tile / of_matrix, elements = rows * columns;
    row = has_rows ? number * p.tile_rows : 0;
    row_end = has_rows ? min(rows, row + p.tile_rows) : 1;
    begin = has_rows ? 0 : number * tile_elements;
    end = has_rows ? columns : min(columns, begin + tile_elements);
    value = static_cast<T*>(p.value) + matrix * elements;
    gradient = static_cast<const T*>(p.gradient) + matrix * elements;
    variance = has_rows ? static_cast<W*>(p.row) + matrix * rows : nullptr;
    column = static_cast<W*>(p.column) + matrix * columns;
    master = p.master ? static_cast<W*>(p.master) + matrix * elements : nullptr;
  }
  __device__ W weight(int64_t i) const { return master ? master[i] : widen(value[i]); }

  /// Threads side by side along the columns: a power of two.
  __device__ int across(int most) const {
    int lanes = 1;
    while (lanes < most && lanes < end - begin) lanes *= 2;
    return lanes;
  }
  /// Calls f(row, column) for the tile's elements, neighbours by neighbouring threads.
  template <class F>
  __device__ void each(F&& f) const {
    const int width = across(threads), thread = static_cast<int>(threadIdx.x);
    for (int64_t r = row + thread / width; r < row_end; r += threads / width)
#pragma unroll 4
      for (int64_t c = begin + thread % width; c < end; c += width) f(r, c);
  }
  /// The mean of the variances of all rows of the matrix; every thread calls.
  __device__ W mean_of_rows() const {
    if (!has_rows) return W(0);
    W sum = 0;
    for (int64_t r = threadIdx.x; r < rows; r += threads) sum += variance[r];
    return device::block_reduce(sum, device::Sum{}, W(0)) / static_cast<W>(rows);
  }
  /// The variance of an element is this times its column's.
  __device__ W row_scale(const AdafactorStep<W>& step, int64_t r, W mean) const {
    return has_rows ? step.row_scale(variance[r], mean) : W(1);
  }
};

/// Moves the variances of the tile's rows on.
template <class T>
__device__ void move_rows(const Tile<T>& tile, const AdafactorStep<wide<T>>& step, wide<T> clip) {
  using W = wide<T>;
  const int lanes = tile.across(warp), thread = static_cast<int>(threadIdx.x);
  const int lane = thread % lanes, rows_at_once = threads / lanes;
  for (int64_t first = tile.row; first < tile.row_end; first += rows_at_once) {
    const int64_t r = first + thread / lanes;
    W squares = 0;
    if (r < tile.row_end)
#pragma unroll 4
      for (int64_t c = lane; c < tile.columns; c += lanes) {
        const W g = clip * widen(tile.gradient[r * tile.columns + c]);
        squares += g * g;
      }
    for (int offset = lanes / 2; offset > 0; offset /= 2)
      squares += __shfl_xor_sync(0xffffffffU, squares, offset);
    if (lane == 0 && r < tile.row_end)
      tile.variance[r] = step.moved(tile.variance[r], squares / static_cast<W>(tile.columns));
  }
}

/// Leaves the sums of the squares in the tile's columns.
template <class T>
__device__ void sum_columns(const Tile<T>& tile, wide<T> clip, wide<T>* partial) {
  using W = wide<T>;
  __shared__ W sums[threads];
  const int width = tile.across(threads), thread = static_cast<int>(threadIdx.x);
  const int rows_at_once = threads / width;
  for (int64_t first = 0; first < tile.columns; first += width) {
    const int64_t c = first + thread % width;
    W squares = 0;
    if (c < tile.columns)
#pragma unroll 8
      for (int64_t r = tile.row + thread / width; r < tile.row_end; r += rows_at_once) {
        const W g = clip * widen(tile.gradient[r * tile.columns + c]);
        squares += g * g;
      }
    sums[thread] = squares;
    __syncthreads();
    if (thread < width && c < tile.columns) {
      for (int other = 1; other < rows_at_once; ++other) squares += sums[thread + other * width];
      partial[c] = squares;
    }
    __syncthreads();
  }
}

/// What all kernels of a step take.
template <class W>
struct Given {
  AdafactorStep<W> step;
  const double* numbers;
  ClipView clip;
  Scratch<W> scratch;

  __device__ AdafactorStep<W> numbered() const {
    AdafactorStep<W> with = step;
    with.set(numbers);
    return with;
  }
  __device__ W factor() const { return static_cast<W>(clip.factor()); }
};

/// The tile of this block, and the tensor that it is of.
template <class T>
__device__ Tile<T> tile_of_block(const TiledTable& table, int& tensor) {
  tensor = table.tensor_of(static_cast<int>(blockIdx.x));
  return Tile<T>(table.tensor[tensor], static_cast<int>(blockIdx.x) - table.first_tile[tensor]);
}
/// Where the sums of a tile's columns are.
template <class W>
__device__ W* partial_of(const TiledTable& table, int tensor, const Given<W>& given, int tile) {
  const Tiled& p = table.tensor[tensor];
  return given.scratch.partial + p.partial + (tile - table.first_tile[tensor]) * p.columns;
}

template <class T>
__global__ void __launch_bounds__(threads)
    squares_kernel(const __grid_constant__ TiledTable table, Given<wide<T>> given) {
  using W = wide<T>;
  if (given.clip.skips()) return;
  const auto step = given.numbered();
  const W clip = given.factor();
  int tensor;
  const auto tile = tile_of_block<T>(table, tensor);
  double w_squares = 0;
  if (tile.has_rows) {
    move_rows(tile, step, clip);
    sum_columns(tile, clip, partial_of(table, tensor, given, static_cast<int>(blockIdx.x)));
    tile.each([&](int64_t r, int64_t c) {
      const auto w = static_cast<double>(tile.weight(r * tile.columns + c));
      w_squares += w * w;
    });
  } else {
    tile.each([&](int64_t, int64_t c) {
      const W g = clip * widen(tile.gradient[c]);
      tile.column[c] = step.moved(tile.column[c], g * g);
      const auto w = static_cast<double>(tile.weight(c));
      w_squares += w * w;
    });
  }
  w_squares = device::block_reduce(w_squares, device::Sum{}, 0.0);
  if (threadIdx.x == 0) given.scratch.squares[2 * blockIdx.x] = w_squares;
}

/// Moves the variances of columns on: each tile has its share of those of its matrix.
template <class T>
__global__ void __launch_bounds__(threads)
    columns_kernel(const __grid_constant__ TiledTable table, Given<wide<T>> given) {
  using W = wide<T>;
  if (given.clip.skips()) return;
  const auto step = given.numbered();
  int tensor;
  const auto tile = tile_of_block<T>(table, tensor);
  if (!tile.has_rows) return;
  const int first = static_cast<int>(blockIdx.x) - tile.number;
  const W* const partial = partial_of(table, tensor, given, first);
  const int64_t begin = tile.number * table.tensor[tensor].share;
  const int64_t end = min(tile.columns, begin + table.tensor[tensor].share);
  for (int64_t c = begin + threadIdx.x; c < end; c += threads) {
    W squares = 0;
#pragma unroll 8
    for (int t = 0; t < tile.of_matrix; ++t) squares += partial[t * tile.columns + c];
    tile.column[c] = step.moved(tile.column[c], squares / static_cast<W>(tile.rows));
  }
}

template <class T>
__global__ void __launch_bounds__(threads)
    directions_kernel(const __grid_constant__ TiledTable table, Given<wide<T>> given) {
  using W = wide<T>;
  if (given.clip.skips()) return;
  int tensor;
  const auto tile = tile_of_block<T>(table, tensor);
  const auto step = given.numbered();
  const W clip = given.factor(), mean = tile.mean_of_rows();
  double u_squares = 0;
  tile.each([&](int64_t r, int64_t c) {
    const W g = clip * widen(tile.gradient[r * tile.columns + c]);
    const W u = step.direction(g, tile.row_scale(step, r, mean) * tile.column[c]);
    u_squares += static_cast<double>(u) * static_cast<double>(u);
  });
  u_squares = device::block_reduce(u_squares, device::Sum{}, 0.0);
  if (threadIdx.x == 0) given.scratch.squares[2 * blockIdx.x + 1] = u_squares;
}

/// One block a tensor.
template <class T>
__global__ void __launch_bounds__(threads)
    length_kernel(const __grid_constant__ TiledTable table, Given<wide<T>> given) {
  if (given.clip.skips()) return;
  const int tensor = static_cast<int>(blockIdx.x);
  double w_squares = 0, u_squares = 0;
  for (int i = table.first_tile[tensor] + static_cast<int>(threadIdx.x);
       i < table.first_tile[tensor + 1]; i += threads) {
    w_squares += given.scratch.squares[2 * i];
    u_squares += given.scratch.squares[2 * i + 1];
  }
  w_squares = device::block_reduce(w_squares, device::Sum{}, 0.0);
  u_squares = device::block_reduce(u_squares, device::Sum{}, 0.0);
  const Tiled& p = table.tensor[tensor];
  if (threadIdx.x == 0)
    given.scratch.length[tensor] =
        given.numbered().length(w_squares, u_squares, p.matrices * p.rows * p.columns);
}

template <class T>
__global__ void __launch_bounds__(threads)
    weights_kernel(const __grid_constant__ TiledTable table, Given<wide<T>> given) {
  using W = wide<T>;
  if (given.clip.skips()) return;
  const auto step = given.numbered();
  int tensor;
  const auto tile = tile_of_block<T>(table, tensor);
  const W length = given.scratch.length[tensor];
  const W clip = given.factor(), mean = tile.mean_of_rows();
  constexpr int ahead = 4;  // columns that are loaded before the first is stored
  const int width = tile.across(threads), thread = static_cast<int>(threadIdx.x);
  for (int64_t r = tile.row + thread / width; r < tile.row_end; r += threads / width) {
    const W scale = tile.row_scale(step, r, mean);
    for (int64_t c = tile.begin + thread % width; c < tile.end; c += ahead * width) {
      W g[ahead], variance[ahead], w[ahead];
#pragma unroll
      for (int u = 0; u < ahead; ++u) {
        const int64_t column = c + u * width, i = r * tile.columns + column;
        if (column >= tile.end) break;
        g[u] = widen(tile.gradient[i]);
        variance[u] = scale * tile.column[column];
        w[u] = tile.weight(i);
      }
#pragma unroll
      for (int u = 0; u < ahead; ++u) {
        const int64_t column = c + u * width, i = r * tile.columns + column;
        if (column >= tile.end) break;
        w[u] = step.stepped(w[u], step.direction(clip * g[u], variance[u]), length);
        if (tile.master) tile.master[i] = w[u];
        tile.value[i] = narrow<T>(w[u]);
      }
    }
  }
}

template <class T>
void step_table(const TiledTable& table, int64_t partials, Given<wide<T>> given, Device device,
                Stream stream) {
  using W = wide<T>;
  const DType dtype = sizeof(W) == sizeof(double) ? f64 : f32;
  const Tensor partial = Tensor::empty({partials}, dtype, device);
  const Tensor squares = Tensor::empty({2 * int64_t{table.tiles()}}, f64, device);
  const Tensor length = Tensor::empty({table.count}, dtype, device);
  given.scratch = {static_cast<W*>(partial.data()), pointer<double>(squares),
                   static_cast<W*>(length.data())};
  const auto run = [&](auto kernel, unsigned blocks) {
    kernel<<<blocks, threads, 0, native(stream)>>>(table, given);
    BS_CUDA_CHECK_LAUNCH("adafactor");
  };
  run(squares_kernel<T>, table.tiles());
  run(columns_kernel<T>, table.tiles());
  run(directions_kernel<T>, table.tiles());
  run(length_kernel<T>, static_cast<unsigned>(table.count));
  run(weights_kernel<T>, table.tiles());
}

}  // namespace

void adafactor(std::span<const AdafactorParameter> parameters, int64_t step,
               const AdafactorOptions& options, const GradientClip& clip, const Tensor& numbers,
               Stream stream) {
  const ClipView clip_by = {static_cast<const double*>(address_of(clip.norm)), clip.max_norm,
                            clip.skip_nonfinite, 1 / clip.scale};
  const Device device = parameters.front().value.device();
  for (DType dtype : floating_dtypes)
    visit_floating("adafactor", dtype, [&]<class T>(Type<T>) {
      using D = device_type<T>;
      const Given<wide<D>> given{
          AdafactorStep<wide<D>>(step, options), numbers_of(numbers), clip_by, {}};
      TiledTable table;
      int64_t partials = 0;
      const auto launch = [&] {
        if (table.count > 0) step_table<D>(table, partials, given, device, stream);
        table.count = 0;
        partials = 0;
      };
      for (const AdafactorParameter& p : parameters) {
        if (p.value.dtype() != dtype) continue;
        if (table.count == TiledTable::capacity) launch();
        Tiled& t = table.tensor[table.count] = Tiled(p);
        const int64_t tiles = t.matrices * t.tiles;
        t.partial = partials;
        if (t.has_rows) partials += tiles * t.columns;
        table.first_tile[table.count + 1] = table.first_tile[table.count] + static_cast<int>(tiles);
        ++table.count;
      }
      launch();
    });
}

}  // namespace bs::cuda
