#include <bs/kernels/cuda/norm/norm_backward_ring.h>
#include <bs/kernels/norm.h>
#include <bs/lib/cuda/occupancy.h>
#include <bs/kernels/cuda/early_launch.cuh>
#include <bs/kernels/cuda/norm/rounded_product.cuh>
#include <bs/kernels/cuda/rows.cuh>

namespace bs::cuda {

namespace {

using device::narrow;
using device::wide;
using device::widen;

constexpr int finish_threads = 1024;

/// Sums of dy * h and dy over rows, of each thread for the columns that it holds. Where they would
/// take 32 registers they lie in shared memory, so that more warps fit.
template <class Row>
class ColumnSums {
 public:
  static constexpr int N = Row::N;
  using W = typename Row::W;
  static constexpr bool in_shared = !Row::is_held || (N > 1 && Row::elements * sizeof(W) == 64);

  /// Memory for a block of threads.
  static size_t bytes(dim3 block) { return block.x * block.y * slots * sizeof(Slot); }

  __device__ void clear() {
#pragma unroll
    for (int s = 0; s < slots; ++s) mine(s) = Slot{};
  }
  /// Adds pack k of a row.
  __device__ void add(int k, const W (&h)[N], const W (&d)[N]) {
#pragma unroll
    for (int j = 0; j < parts; ++j) {
      Slot& weights = mine(k * parts + j);
      Slot& biases = mine((packs + k) * parts + j);
      Slot dweight = weights, dbias = biases;
#pragma unroll
      for (int i = 0; i < width; ++i) {
        dweight.at[i] += d[j * width + i] * h[j * width + i];
        dbias.at[i] += d[j * width + i];
      }
      weights = dweight;
      biases = dbias;
    }
  }
  /// The sums of all rows of threads, in their order, to a row of `partial` [2, blocks, n].
  __device__ void leave(W* partial, int64_t n) {
    if constexpr (!in_shared) {
#pragma unroll
      for (int s = 0; s < slots; ++s) at(s, threadIdx.y) = held_[s];
    }
    __syncthreads();
    for (int s = static_cast<int>(threadIdx.y); s < slots; s += static_cast<int>(blockDim.y)) {
      const unsigned p = threadIdx.x + s / parts % packs * blockDim.x;
      if (p >= n / N) continue;
      Slot sum = at(s, 0);
      for (unsigned y = 1; y < blockDim.y; ++y) {
        const Slot other = at(s, y);
#pragma unroll
        for (int i = 0; i < width; ++i) sum.at[i] += other.at[i];
      }
      const int64_t row = s / (packs * parts) * int64_t{gridDim.x} + blockIdx.x;
      *reinterpret_cast<Slot*>(partial + row * n + p * N + s % parts * width) = sum;
    }
  }

 private:
  static constexpr int packs = Row::elements / N;
  static constexpr int width = std::min(N, device::pack_size<W>);  ///< of what is moved at once
  static constexpr int parts = N / width, slots = 2 * packs * parts;
  using Slot = device::Pack<W, width>;
  __device__ Slot& mine(int s) {
    if constexpr (in_shared) {
      return at(s, threadIdx.y);
    } else {
      return held_[s];
    }
  }
  /// Slot s of a thread of this column and of row y. Neighbours lie side by side.
  __device__ Slot& at(int s, unsigned y) {
    extern __shared__ uint4 shared[];
    return reinterpret_cast<Slot*>(shared)[(s * blockDim.y + y) * blockDim.x + threadIdx.x];
  }

  Slot held_[in_shared ? 1 : slots];
};

/// Threads of a multiprocessor among which its registers are divided, so that none spills.
template <class Row, bool adds>
constexpr int busy_threads() {
  using T = typename Row::T;
  if (Row::elements > 16) return 384;
  if (Row::N == 1 || Row::elements == 1 || sizeof(T) > 4) return 512;
  return adds || sizeof(T) > 2 ? 640 : 768;
}

/// dx of the rows that fall to these threads; the next row is on its way while one is computed.
/// Threads that hold their rows add up their columns on the way, where there is a `partial` to
/// leave the sums of a block in. Rows of 16 bits of `dsum` come ahead too, where it `adds`. Where
/// rows share warps, lanes of rows that are none take part in what the warp reduces.
template <class T, class Row, bool adds, bool shares>
__global__ void __launch_bounds__(busy_threads<Row, adds>())
    norm_backward_kernel(const T* x, const T* weight, const wide<T>* means, const wide<T>* rstds,
                         const T* dy, const T* dsum, T* dx, wide<T>* partial, int64_t rows,
                         int64_t n) {
  using W = wide<T>;
  constexpr int N = Row::N;
  const int64_t worker = int64_t{blockIdx.x} * blockDim.y + threadIdx.y;
  const int64_t workers = int64_t{gridDim.x} * blockDim.y;
  ColumnSums<Row> columns;
  if (Row::is_held && partial) columns.clear();
  // Where registers are short the weight is read again for each row.
  constexpr bool again = ColumnSums<Row>::in_shared || (adds && Row::elements > 16);
  std::conditional_t<again, LongRow<T, N>, Row> factors;
  if (weight) factors.load(weight, n);
  Row in, slope, more, next_in, next_slope, next_more;
  W next_mean = 0, next_rstd = 0;
  const auto fetch = [&](int64_t row) {
    if (row >= rows) return;
    next_in.load(x + row * n, n);
    next_slope.load(dy + row * n, n);
    if constexpr (adds) next_more.load(dsum + row * n, n);
    if (means) next_mean = means[row];
    next_rstd = rstds[row];
  };
  fetch(worker);
  for (int64_t mine = worker; mine - (shares ? threadIdx.y : 0) < rows; mine += workers) {
    const bool inside = !shares || mine < rows;
    const int64_t row = inside ? mine : 0;
    in = next_in;
    slope = next_slope;
    if constexpr (adds) more = next_more;
    const W mean = next_mean, rstd = next_rstd;
    fetch(mine + workers);
    // f(k, p, h, d, g): normalised x, dy, and dy times the weight.
    const auto for_each = [&](auto&& f) {
      Row::for_each_pack(n, [&](int k, unsigned p) {
        W h[N], d[N], g[N];
        in.get(k, p, h);
        slope.get(k, p, d);
        if (weight) {
          factors.get(k, p, g);
        } else {
#pragma unroll
          for (int i = 0; i < N; ++i) g[i] = 1;
        }
#pragma unroll
        for (int i = 0; i < N; ++i) {
          h[i] = (h[i] - mean) * rstd;
          g[i] *= d[i];
        }
        f(k, p, h, d, g);
      });
    };
    Two<W> sums = {0, 0};
    for_each([&](int k, unsigned, W(&h)[N], W(&d)[N], W(&g)[N]) {
#pragma unroll
      for (int i = 0; i < N; ++i) {
        sums.a += g[i];
        sums.b += g[i] * h[i];
      }
      if constexpr (Row::is_held)
        if (partial && inside) columns.add(k, h, d);
    });
    if constexpr (shares) {
      sums = lanes_sum(sums);
    } else {
      sums = row_sum(sums);
    }
    const W offset = means ? rounded_product(rstd, sums.a / n) : W(0);
    const W factor = rstd * (sums.b / n);
    for_each([&](int k, unsigned p, W(&h)[N], W(&)[N], W(&g)[N]) {
      W other[N] = {};
      if constexpr (adds) {
        more.get(k, p, other);
      } else if constexpr (sizeof(T) > 2) {
        get_over(dsum ? dsum + row * n : nullptr, p, W(0), other);
      }
#pragma unroll
      for (int i = 0; i < N; ++i)
        g[i] = rounded_product(rstd, g[i]) - offset + other[i] - h[i] * factor;
      if (inside) store_pack(dx + row * n, p, g);
    });
  }
  let_next_launch_begin();
  if constexpr (Row::is_held)
    if (partial) columns.leave(partial, n);
}

/// Sums of dy * h and dy over the rows of one worker (blockIdx.y), a thread a column.
template <class T>
__global__ void norm_columns_kernel(const T* x, const wide<T>* means, const wide<T>* rstds,
                                    const T* dy, wide<T>* partial, int64_t rows, int64_t n) {
  using W = wide<T>;
  const int64_t column = int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  if (column >= n) return;
  W dweight = 0, dbias = 0;
  constexpr int ahead = 4;  // rows on their way
  for (int64_t row = blockIdx.y; row < rows; row += ahead * gridDim.y) {
    W d[ahead] = {}, h[ahead] = {};
#pragma unroll
    for (int k = 0; k < ahead; ++k) {
      const int64_t at = row + k * gridDim.y;
      if (at >= rows) break;
      d[k] = widen(dy[at * n + column]);
      h[k] = (widen(x[at * n + column]) - (means ? means[at] : W(0))) * rstds[at];
    }
#pragma unroll
    for (int k = 0; k < ahead; ++k) {
      dweight += d[k] * h[k];
      dbias += d[k];
    }
  }
  partial[blockIdx.y * n + column] = dweight;
  partial[(gridDim.y + int64_t{blockIdx.y}) * n + column] = dbias;
}

/// out[column] = sum over the workers' partial sums: 32 packs of V columns a block, every row of
/// threads takes every blockDim.y-th worker, then the rows are added up in their order.
template <class T, int V>
__global__ void __launch_bounds__(finish_threads)
    norm_finish_kernel(const wide<T>* partial, T* dweight, T* dbias, int64_t workers, int64_t n) {
  using W = wide<T>;
  using Sums = device::Pack<W, V>;
  __shared__ W sums[finish_threads / 32][32 * V];
  T* out = blockIdx.y == 0 ? dweight : dbias;
  if (!out) return;
  partial += blockIdx.y * workers * n;
  const int64_t first = int64_t{blockIdx.x} * 32 * V, column = first + threadIdx.x * V;
  Sums mine = {};
  wait_for_previous_launch();
  constexpr int ahead = 8;  // loads on their way
  const W* from = partial + threadIdx.y * n + column;
  const int64_t step = blockDim.y * n;
  const auto count = static_cast<unsigned>(workers);
  for (unsigned w = threadIdx.y; w < count && column < n; w += ahead * blockDim.y) {
    Sums loaded[ahead] = {};
#pragma unroll
    for (int k = 0; k < ahead; ++k, from += step)
      if (w + k * blockDim.y < count) loaded[k] = *reinterpret_cast<const Sums*>(from);
#pragma unroll
    for (int k = 0; k < ahead; ++k)
#pragma unroll
      for (int i = 0; i < V; ++i) mine.at[i] += loaded[k].at[i];
  }
#pragma unroll
  for (int i = 0; i < V; ++i) sums[threadIdx.y][threadIdx.x * V + i] = mine.at[i];
  __syncthreads();
  const unsigned threads = 32 * blockDim.y, thread = threadIdx.y * 32 + threadIdx.x;
  for (unsigned at = thread; at < 32 * V && first + at < n; at += threads) {
    W sum = 0;
    for (unsigned y = 0; y < blockDim.y; ++y) sum += sums[y][at];
    out[first + at] = narrow<T>(sum);
  }
}

/// As many blocks as fit, each with `shared` bytes; at least so many rows a worker.
unsigned backward_blocks(const void* kernel, size_t shared, int64_t rows, int64_t least, dim3 block,
                         Device device) {
  const int fit = blocks_that_fit(kernel, static_cast<int>(block.x * block.y), shared, device);
  return grid_size(ceil_div(rows, least), static_cast<int>(block.y), device, std::max(fit, 1));
}

/// Parts of long rows' columns, which fill the GPU, of four rows at least.
unsigned column_parts(int64_t rows, int64_t blocks, Device device) {
  constexpr int64_t most = 65535;  // of the grid's second axis
  const int64_t wanted = 8 * int64_t{device_properties(device).multiprocessors} / blocks;
  return static_cast<unsigned>(std::clamp<int64_t>(std::min(wanted, rows / 4), 1, most));
}

/// The sums of `blocks` blocks, which the kernel before left.
template <class T>
void finish(const Tensor& partial, unsigned blocks, const NormGradients& to, int64_t n,
            Stream stream) {
  using D = device_type<T>;
  constexpr int V = 4;
  const bool packed =
      n % V == 0 && n / (32 * V) >= device_properties(partial.device()).multiprocessors;
  const auto kernel = packed ? norm_finish_kernel<D, V> : norm_finish_kernel<D, 1>;
  // Threads of few workers would be idle: then more blocks fit.
  const unsigned rows = std::clamp(std::bit_ceil(blocks) / 8, 4U, finish_threads / 32U);
  const dim3 grid(static_cast<unsigned>(ceil_div(n, packed ? 32 * V : 32)), 2);
  launch_early(kernel, grid, dim3(32, rows), 0, stream, pointer<wide<D>>(partial),
               maybe<T>(to.dweight), maybe<T>(to.dbias), blocks, n);
  BS_CUDA_CHECK_LAUNCH("norm_backward");
}

}  // namespace

/// Sums over rows are made in two stages: by each worker over its own rows, then over the workers.
void norm_backward(const NormResult& of, const Tensor& weight, const Tensor& dy, const Tensor& dsum,
                   const NormGradients& to, Stream stream) {
  const Tensor& x = of.sum;
  const int64_t n = x.size(-1);
  const int64_t rows = x.numel() / n;
  visit_floating("norm_backward", x.dtype(), [&]<class T>(Type<T>) {
    using D = device_type<T>;
    using W = wide<D>;
    const bool aligned = aligned16(x, weight, dy, dsum, to.dx);
    Tensor of_ring;
    if (const unsigned blocks = norm_backward_ring(of, weight, dy, dsum, to, of_ring, stream)) {
      if (of_ring.defined()) finish<T>(of_ring, blocks, to, n, stream);
      return;
    }
    // The sums of a thread take up to four times the registers of what it holds.
    constexpr int held_bytes = sizeof(T) == 2 ? 32 : 64;
    const auto run = [&]<bool shares, class Row>(std::bool_constant<shares>, Type<Row>,
                                                 dim3 block) {
      auto* kernel = norm_backward_kernel<D, Row, false, shares>;
      if constexpr (sizeof(T) == 2)
        if (dsum.defined()) kernel = norm_backward_kernel<D, Row, true, shares>;
      const bool sums = to.dweight.defined() || to.dbias.defined();
      const size_t shared = sums && Row::is_held ? ColumnSums<Row>::bytes(block) : 0;
      const auto* const symbol = reinterpret_cast<const void*>(kernel);
      allow_shared_memory(symbol, ColumnSums<Row>::bytes(dim3(most_row_threads)), x.device());
      // Sums of few rows each would not be small beside x.
      const int64_t least = Row::is_held ? 16 : 1, across = ceil_div(n, 256);
      const unsigned blocks = backward_blocks(symbol, shared, rows, least, block, x.device());
      const unsigned parts = Row::is_held ? blocks : column_parts(rows, across, x.device());
      Tensor partial;
      if (sums) partial = Tensor::empty({2, int64_t{parts}, n}, dtype_of<W>, x.device());
      kernel<<<blocks, block, shared, native(stream)>>>(
          pointer<T>(x), maybe<T>(weight), maybe<W>(of.mean), pointer<W>(of.rstd), pointer<T>(dy),
          maybe<T>(dsum), pointer<T>(to.dx), maybe<W>(partial), rows, n);
      BS_CUDA_CHECK_LAUNCH("norm_backward");
      if (!sums) return;
      if (!Row::is_held) {
        const dim3 grid(static_cast<unsigned>(across), parts);
        norm_columns_kernel<<<grid, 256, 0, native(stream)>>>(pointer<T>(x), maybe<W>(of.mean),
                                                              pointer<W>(of.rstd), pointer<T>(dy),
                                                              pointer<W>(partial), rows, n);
        BS_CUDA_CHECK_LAUNCH("norm_backward");
      }
      finish<T>(partial, parts, to, n, stream);
    };
    const bool few = visit_rows_of_packs<T>(
        aligned, n, [&](auto row, dim3 block) { run(std::true_type{}, row, block); });
    if (!few)
      visit_short_row<T, held_bytes>(aligned, rows, n, x.device(), [&](auto row, dim3 block) {
        run(std::false_type{}, row, block);
      });
  });
}

}  // namespace bs::cuda
