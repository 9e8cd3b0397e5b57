#include <bs/kernels/norm.h>
#include <bs/kernels/cuda/rows.cuh>

namespace bs::cuda {

namespace {

using device::narrow;
using device::wide;
using device::widen;

/// Columns' sums of the warps of a block, in their order, to a row of `partial` [2, blocks, n].
template <class Row, class W, int elements>
__device__ void leave_sums(const W (&dweight)[elements], const W (&dbias)[elements], W* partial,
                           int64_t n) {
  constexpr int N = Row::N;
  using Sums = device::Pack<W, N>;
  extern __shared__ uint4 shared[];
  auto* const sums = reinterpret_cast<Sums*>(shared);  // [2, n / N]
  const auto packs = static_cast<unsigned>(n / N);
  for (unsigned warp = 0; warp < blockDim.y; ++warp) {
    if (warp > 0) __syncthreads();
    if (threadIdx.y != warp) continue;
    Row::for_each_pack(n, [&](int k, unsigned p) {
      Sums a, b;
      if (warp > 0) {
        a = sums[p];
        b = sums[packs + p];
      }
#pragma unroll
      for (int i = 0; i < N; ++i) {
        a.at[i] = dweight[k * N + i] + (warp > 0 ? a.at[i] : W(0));
        b.at[i] = dbias[k * N + i] + (warp > 0 ? b.at[i] : W(0));
      }
      const bool last = warp + 1 == blockDim.y;
      (last ? reinterpret_cast<Sums*>(partial + blockIdx.x * n) : sums)[p] = a;
      (last ? reinterpret_cast<Sums*>(partial + (gridDim.x + int64_t{blockIdx.x}) * n)
            : sums + packs)[p] = b;
    });
  }
}

/// dx of the rows that fall to these threads; the next row is on its way while one is computed.
/// Threads that hold their rows add up their columns' dy * h and dy on the way, and leave the sums
/// of a block in `partial`. Rows of 16 bits of `dsum` come ahead too, where it `adds`. Where rows
/// share warps, lanes of rows that are none take part in what the warp reduces.
template <class T, class Row, bool adds, bool shares>
__global__ void __launch_bounds__(Row::elements > 16 ? 128 : most_row_threads)
    norm_backward_kernel(const T* x, const T* weight, const wide<T>* means, const wide<T>* rstds,
                         const T* dy, const T* dsum, T* dx, wide<T>* partial, int64_t rows,
                         int64_t n) {
  using W = wide<T>;
  constexpr int N = Row::N;
  const int64_t worker = int64_t{blockIdx.x} * blockDim.y + threadIdx.y;
  const int64_t workers = int64_t{gridDim.x} * blockDim.y;
  W dweight[Row::elements] = {};
  W dbias[Row::elements] = {};
  Row factors, in, slope, more, next_in, next_slope, next_more;
  if (weight) factors.load(weight, n);
  const auto fetch = [&](int64_t row) {
    if (row >= rows) return;
    next_in.load(x + row * n, n);
    next_slope.load(dy + row * n, n);
    if constexpr (adds) next_more.load(dsum + row * n, n);
  };
  fetch(worker);
  for (int64_t mine = worker; mine - (shares ? threadIdx.y : 0) < rows; mine += workers) {
    const bool inside = !shares || mine < rows;
    const int64_t row = inside ? mine : 0;
    in = next_in;
    slope = next_slope;
    if constexpr (adds) more = next_more;
    fetch(mine + workers);
    const W mean = means ? means[row] : W(0);
    const W rstd = rstds[row];
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
        if (Row::is_held && inside) {
          dweight[k * N + i] += d[i] * h[i];
          dbias[k * N + i] += d[i];
        }
      }
    });
    if constexpr (shares) {
      sums = lanes_sum(sums);
    } else {
      sums = row_sum(sums);
    }
    const W offset = means ? sums.a / n : W(0);
    const W factor = sums.b / n;
    for_each([&](int k, unsigned p, W(&h)[N], W(&)[N], W(&g)[N]) {
      W other[N] = {};
      if constexpr (adds) {
        more.get(k, p, other);
      } else if constexpr (sizeof(T) > 2) {
        get_over(dsum ? dsum + row * n : nullptr, p, W(0), other);
      }
#pragma unroll
      for (int i = 0; i < N; ++i) g[i] = other[i] + rstd * (g[i] - offset - h[i] * factor);
      if (inside) store_pack(dx + row * n, p, g);
    });
  }
  if constexpr (Row::is_held) {
    if (partial) leave_sums<Row>(dweight, dbias, partial, n);
  }
}

/// Sums of dy * h and dy over the rows of one worker (blockIdx.y), a thread a column.
template <class T>
__global__ void norm_columns_kernel(const T* x, const wide<T>* means, const wide<T>* rstds,
                                    const T* dy, wide<T>* partial, int64_t rows, int64_t n) {
  using W = wide<T>;
  const int64_t column = int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  if (column >= n) return;
  W dweight = 0;
  W dbias = 0;
  for (int64_t row = blockIdx.y; row < rows; row += gridDim.y) {
    const W d = widen(dy[row * n + column]);
    dweight += d * (widen(x[row * n + column]) - (means ? means[row] : W(0))) * rstds[row];
    dbias += d;
  }
  partial[blockIdx.y * n + column] = dweight;
  partial[(gridDim.y + int64_t{blockIdx.y}) * n + column] = dbias;
}

/// out[column] = sum over the workers' partial sums: 32 columns a block, every row of threads takes
/// every 32nd worker, then the rows are added up in their order.
template <class T>
__global__ void norm_finish_kernel(const wide<T>* partial, T* dweight, T* dbias, int64_t workers,
                                   int64_t n) {
  using W = wide<T>;
  __shared__ W sums[32][33];
  T* out = blockIdx.y == 0 ? dweight : dbias;
  if (!out) return;
  partial += blockIdx.y * workers * n;
  const int64_t column = int64_t{blockIdx.x} * 32 + threadIdx.x;
  W sum = 0;
  if (column < n) {
#pragma unroll 8
    for (int64_t w = threadIdx.y; w < workers; w += 32) sum += partial[w * n + column];
  }
  sums[threadIdx.y][threadIdx.x] = sum;
  __syncthreads();
  sum = device::warp_reduce(sums[threadIdx.x][threadIdx.y], device::Sum{});
  const int64_t mine = int64_t{blockIdx.x} * 32 + threadIdx.y;
  if (threadIdx.x == 0 && mine < n) out[mine] = narrow<T>(sum);
}

/// At least 16 rows a worker, so that partial sums stay small beside x.
template <class Row>
unsigned backward_blocks(int64_t rows, dim3 block, Device device) {
  // Threads of a multiprocessor, which their registers allow.
  constexpr int busy = Row::elements > 16 ? 384 : Row::elements == Row::N && Row::N > 4 ? 640 : 512;
  const int blocks = std::max(busy / static_cast<int>(block.x * block.y), 1);
  return grid_size(ceil_div(rows, 16), static_cast<int>(block.y), device, blocks);
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
    // The sums of a thread take up to four times the registers of what it holds.
    constexpr int held_bytes = sizeof(T) == 2 ? 32 : 64;
    const auto run = [&]<bool shares, class Row>(std::bool_constant<shares>, Type<Row>,
                                                 dim3 block) {
      const unsigned blocks = backward_blocks<Row>(rows, block, x.device());
      const bool sums = to.dweight.defined() || to.dbias.defined();
      Tensor partial;
      if (sums) partial = Tensor::empty({2, int64_t{blocks}, n}, dtype_of<W>, x.device());
      auto* kernel = norm_backward_kernel<D, Row, false, shares>;
      if constexpr (sizeof(T) == 2)
        if (dsum.defined()) kernel = norm_backward_kernel<D, Row, true, shares>;
      const size_t shared = block.y > 1 ? 2 * static_cast<size_t>(n) * sizeof(W) : 0;
      kernel<<<blocks, block, shared, native(stream)>>>(
          pointer<T>(x), maybe<T>(weight), maybe<W>(of.mean), pointer<W>(of.rstd), pointer<T>(dy),
          maybe<T>(dsum), pointer<T>(to.dx), maybe<W>(partial), rows, n);
      BS_CUDA_CHECK_LAUNCH("norm_backward");
      if (!sums) return;
      if (!Row::is_held) {
        const dim3 grid(static_cast<unsigned>(ceil_div(n, 256)), blocks);
        norm_columns_kernel<<<grid, 256, 0, native(stream)>>>(pointer<T>(x), maybe<W>(of.mean),
                                                              pointer<W>(of.rstd), pointer<T>(dy),
                                                              pointer<W>(partial), rows, n);
        BS_CUDA_CHECK_LAUNCH("norm_backward");
      }
      const dim3 grid(static_cast<unsigned>(ceil_div(n, 32)), 2);
      norm_finish_kernel<D><<<grid, dim3(32, 32), 0, native(stream)>>>(
          pointer<W>(partial), maybe<T>(to.dweight), maybe<T>(to.dbias), blocks, n);
      BS_CUDA_CHECK_LAUNCH("norm_backward");
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
