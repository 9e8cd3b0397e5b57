#include <bs/kernels/norm.h>
#include <bs/kernels/cuda/rows.cuh>

namespace bs::cuda {

namespace {

using device::narrow;
using device::wide;
using device::widen;

/// What is normalised: x, or x + added, which goes to `sum`.
template <class T>
struct Input {
  const T* x;
  const T* added;
  T* sum;

  /// Brings a row into `in`; a sum as it is when rounded.
  template <class Row>
  __device__ void load(int64_t row, int64_t n, Row& in) const {
    constexpr int N = Row::N;
    in.load(x + row * n, n);
    if (!added) return;
    Row more;
    more.load(added + row * n, n);
    Row::for_each_pack(n, [&](int k, unsigned p) {
      wide<T> a[N], b[N];
      in.get(k, p, a);
      more.get(k, p, b);
#pragma unroll
      for (int i = 0; i < N; ++i) a[i] += b[i];
      store_pack(sum + row * n, p, a);
      in.set(k, a);
    });
    if (!Row::is_held) in.load(sum + row * n, n);
  }
};

/// y and the statistics of one row, read once where it is held.
template <class T, class Row, bool adds>
__global__ void __launch_bounds__(most_row_threads)
    norm_kernel(Input<T> input, const T* weight, const T* bias, T* y, wide<T>* means,
                wide<T>* rstds, int64_t rows, int64_t n, wide<T> eps) {
  using W = wide<T>;
  constexpr int N = Row::N;
  const int64_t row = int64_t{blockIdx.x} * blockDim.y + threadIdx.y;
  if (row >= rows) return;
  Row in;
  if constexpr (!adds) input.added = nullptr;
  input.load(row, n, in);
  const auto for_each = [&](auto&& f) {
    Row::for_each_pack(n, [&](int k, unsigned p) {
      W v[N];
      in.get(k, p, v);
      f(p, v);
    });
  };
  W mean = 0;
  if (means) {
    W sum = 0;
    for_each([&](unsigned, W(&v)[N]) {
#pragma unroll
      for (int i = 0; i < N; ++i) sum += v[i];
    });
    mean = row_sum(sum) / n;
  }
  W squares = 0;
  for_each([&](unsigned, W(&v)[N]) {
#pragma unroll
    for (int i = 0; i < N; ++i) squares += (v[i] - mean) * (v[i] - mean);
  });
  const W rstd = 1 / sqrt(row_sum(squares) / n + eps);
  if (threadIdx.x == 0) {
    if (means) means[row] = mean;
    rstds[row] = rstd;
  }
  for_each([&](unsigned p, W(&v)[N]) {
    W factor[N], shift[N];
    get_over(weight, p, W(1), factor);
    get_over(bias, p, W(0), shift);
#pragma unroll
    for (int i = 0; i < N; ++i) v[i] = (v[i] - mean) * rstd * factor[i] + shift[i];
    store_pack(y + row * n, p, v);
  });
}

/// dx of the rows that fall to these threads; the next row is on its way while one is computed.
/// Threads that hold their rows add up their columns' dy * h and dy on the way, and leave the sums
/// in a row of `partial` [2, workers, n], worker being the block, or each of its warps.
template <class T, class Row>
__global__ void __launch_bounds__(most_row_threads)
    norm_backward_kernel(const T* x, const T* weight, const wide<T>* means, const wide<T>* rstds,
                         const T* dy, const T* dsum, T* dx, wide<T>* partial, int64_t rows,
                         int64_t n) {
  using W = wide<T>;
  constexpr int N = Row::N;
  const int64_t worker = int64_t{blockIdx.x} * blockDim.y + threadIdx.y;
  const int64_t workers = int64_t{gridDim.x} * blockDim.y;
  W dweight[Row::elements] = {};
  W dbias[Row::elements] = {};
  Row factors, in, slope, next_in, next_slope;
  if (weight) factors.load(weight, n);
  if (worker < rows) {
    next_in.load(x + worker * n, n);
    next_slope.load(dy + worker * n, n);
  }
  for (int64_t row = worker; row < rows; row += workers) {
    in = next_in;
    slope = next_slope;
    if (row + workers < rows) {
      next_in.load(x + (row + workers) * n, n);
      next_slope.load(dy + (row + workers) * n, n);
    }
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
        if constexpr (Row::is_held) {
          dweight[k * N + i] += d[i] * h[i];
          dbias[k * N + i] += d[i];
        }
      }
    });
    sums = row_sum(sums);
    const W offset = means ? sums.a / n : W(0);
    const W factor = sums.b / n;
    for_each([&](int, unsigned p, W(&h)[N], W(&)[N], W(&g)[N]) {
      W other[N];
      get_over(dsum ? dsum + row * n : nullptr, p, W(0), other);
#pragma unroll
      for (int i = 0; i < N; ++i) g[i] = other[i] + rstd * (g[i] - offset - h[i] * factor);
      store_pack(dx + row * n, p, g);
    });
  }
  if constexpr (Row::is_held) {
    if (partial)
      Row::for_each_pack(n, [&](int k, unsigned p) {
        using Sums = device::Pack<W, N>;
        Sums a, b;
#pragma unroll
        for (int i = 0; i < N; ++i) {
          a.at[i] = dweight[k * N + i];
          b.at[i] = dbias[k * N + i];
        }
        reinterpret_cast<Sums*>(partial + worker * n)[p] = a;
        reinterpret_cast<Sums*>(partial + (workers + worker) * n)[p] = b;
      });
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
unsigned backward_blocks(int64_t rows, dim3 block, Device device) {
  constexpr int busy = 512;  // threads of a multiprocessor, which their registers allow
  const int blocks = std::max(busy / static_cast<int>(block.x * block.y), 1);
  return grid_size(ceil_div(rows, 16), static_cast<int>(block.y), device, blocks);
}

}  // namespace

void norm(const Tensor& x, const Tensor& added, const Tensor& weight, const Tensor& bias,
          const NormResult& to, double eps, Stream stream) {
  const int64_t n = x.size(-1);
  const int64_t rows = x.numel() / n;
  visit_floating("norm", x.dtype(), [&]<class T>(Type<T>) {
    using D = device_type<T>;
    using W = wide<D>;
    const bool aligned = aligned16(x, added, weight, bias, to.y, to.sum);
    visit_row<T, 128>(aligned, rows, n, x.device(), [&]<class Row>(Type<Row>, dim3 block) {
      const auto grid = static_cast<unsigned>(ceil_div(rows, block.y));
      const Input<D> input{pointer<T>(x), maybe<T>(added), maybe<T>(to.sum)};
      const auto kernel = added.defined() ? norm_kernel<D, Row, true> : norm_kernel<D, Row, false>;
      kernel<<<grid, block, 0, native(stream)>>>(input, maybe<T>(weight), maybe<T>(bias),
                                                 pointer<T>(to.y), maybe<W>(to.mean),
                                                 pointer<W>(to.rstd), rows, n, static_cast<W>(eps));
    });
  });
  BS_CUDA_CHECK_LAUNCH("norm");
}

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
    visit_row<T, held_bytes>(aligned, rows, n, x.device(), [&]<class Row>(Type<Row>, dim3 block) {
      const unsigned blocks = backward_blocks(rows, block, x.device());
      const int64_t workers = int64_t{blocks} * block.y;
      const bool sums = to.dweight.defined() || to.dbias.defined();
      Tensor partial;
      if (sums) partial = Tensor::empty({2, workers, n}, dtype_of<W>, x.device());
      norm_backward_kernel<D, Row><<<blocks, block, 0, native(stream)>>>(
          pointer<T>(x), maybe<T>(weight), maybe<W>(of.mean), pointer<W>(of.rstd), pointer<T>(dy),
          maybe<T>(dsum), pointer<T>(to.dx), maybe<W>(partial), rows, n);
      BS_CUDA_CHECK_LAUNCH("norm_backward");
      if (!sums) return;
      if (!Row::is_held) {
        const dim3 grid(static_cast<unsigned>(ceil_div(n, 256)), static_cast<unsigned>(workers));
        norm_columns_kernel<<<grid, 256, 0, native(stream)>>>(pointer<T>(x), maybe<W>(of.mean),
                                                              pointer<W>(of.rstd), pointer<T>(dy),
                                                              pointer<W>(partial), rows, n);
        BS_CUDA_CHECK_LAUNCH("norm_backward");
      }
      const dim3 grid(static_cast<unsigned>(ceil_div(n, 32)), 2);
      norm_finish_kernel<D><<<grid, dim3(32, 32), 0, native(stream)>>>(
          pointer<W>(partial), maybe<T>(to.dweight), maybe<T>(to.dbias), workers, n);
      BS_CUDA_CHECK_LAUNCH("norm_backward");
    });
  });
}

}  // namespace bs::cuda
