#include <bs/kernels/norm.h>
#include <bs/kernels/cuda/rows.cuh>

namespace bs::cuda {

namespace {

using device::narrow;
using device::wide;
using device::widen;

/// y and the statistics of one row, read once where it is held.
template <class T, class Row>
__global__ void __launch_bounds__(most_row_threads)
    norm_kernel(const T* x, const T* weight, const T* bias, T* y, wide<T>* means, wide<T>* rstds,
                int64_t rows, int64_t n, wide<T> eps) {
  using W = wide<T>;
  const int64_t row = int64_t{blockIdx.x} * blockDim.y + threadIdx.y;
  if (row >= rows) return;
  Row in;
  in.load(x + row * n, n);
  W mean = 0;
  if (means) {
    W sum = 0;
    Row::for_each(n, [&](auto p) { sum += in[p]; });
    mean = row_sum(sum) / n;
  }
  W squares = 0;
  Row::for_each(n, [&](auto p) { squares += (in[p] - mean) * (in[p] - mean); });
  const W rstd = 1 / sqrt(row_sum(squares) / n + eps);
  if (threadIdx.x == 0) {
    if (means) means[row] = mean;
    rstds[row] = rstd;
  }
  Row::store(y + row * n, n, [&](auto p) {
    return (in[p] - mean) * rstd * Row::over(weight, p, W(1)) + Row::over(bias, p, W(0));
  });
}

/// dx of the rows that fall to these threads. Threads that hold their rows add up their columns'
/// dy * h and dy on the way, and leave the sums in a row of `partial` [2, workers, n], worker being
/// the block, or each of its warps.
template <class T, class Row>
__global__ void __launch_bounds__(most_row_threads)
    norm_backward_kernel(const T* x, const T* weight, const wide<T>* means, const wide<T>* rstds,
                         const T* dy, T* dx, wide<T>* partial, int64_t rows, int64_t n) {
  using W = wide<T>;
  const int64_t worker = int64_t{blockIdx.x} * blockDim.y + threadIdx.y;
  const int64_t workers = int64_t{gridDim.x} * blockDim.y;
  W dweight[Row::most] = {};
  W dbias[Row::most] = {};
  for (int64_t row = worker; row < rows; row += workers) {
    Row in;
    Row slope;
    in.load(x + row * n, n);
    slope.load(dy + row * n, n);
    const W mean = means ? means[row] : W(0);
    const W rstd = rstds[row];
    W sum = 0;
    W dot = 0;
    Row::for_each(n, [&](auto p) {
      const W h = (in[p] - mean) * rstd;
      const W g = slope[p] * Row::over(weight, p, W(1));
      sum += g;
      dot += g * h;
      if constexpr (Row::is_held) {
        dweight[p.number()] += slope[p] * h;
        dbias[p.number()] += slope[p];
      }
    });
    const W offset = means ? row_sum(sum) / n : W(0);
    const W factor = row_sum(dot) / n;
    Row::store(dx + row * n, n, [&](auto p) {
      const W h = (in[p] - mean) * rstd;
      return rstd * (slope[p] * Row::over(weight, p, W(1)) - offset - h * factor);
    });
  }
  if constexpr (Row::is_held) {
    if (partial)
      Row::for_each(n, [&](auto p) {
        partial[worker * n + p.column()] = dweight[p.number()];
        partial[(workers + worker) * n + p.column()] = dbias[p.number()];
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
  if (column < n)
    for (int64_t w = threadIdx.y; w < workers; w += 32) sum += partial[w * n + column];
  sums[threadIdx.y][threadIdx.x] = sum;
  __syncthreads();
  sum = device::warp_reduce(sums[threadIdx.x][threadIdx.y], device::Sum{});
  const int64_t mine = int64_t{blockIdx.x} * 32 + threadIdx.y;
  if (threadIdx.x == 0 && mine < n) out[mine] = narrow<T>(sum);
}

/// At least 16 rows a worker, so that partial sums stay small beside x.
unsigned backward_blocks(int64_t rows, dim3 block, Device device) {
  return grid_size(ceil_div(rows, 16), static_cast<int>(block.y), device, 4);
}

}  // namespace

void norm(const Tensor& x, const Tensor& weight, const Tensor& bias, const Tensor& y,
          const Tensor& mean, const Tensor& rstd, double eps, Stream stream) {
  const int64_t n = x.size(-1);
  const int64_t rows = x.numel() / n;
  visit_floating("norm", x.dtype(), [&]<class T>(Type<T>) {
    using D = device_type<T>;
    using W = wide<D>;
    const bool aligned = aligned16(x, weight, bias, y);
    visit_row<T>(aligned, n, [&]<class Row>(Type<Row>, dim3 block) {
      const auto grid = static_cast<unsigned>(ceil_div(rows, block.y));
      norm_kernel<D, Row><<<grid, block, 0, native(stream)>>>(
          pointer<T>(x), maybe<T>(weight), maybe<T>(bias), pointer<T>(y), maybe<W>(mean),
          pointer<W>(rstd), rows, n, static_cast<W>(eps));
    });
  });
  BS_CUDA_CHECK_LAUNCH("norm");
}

/// Sums over rows are made in two stages: by each worker over its own rows, then over the workers.
void norm_backward(const Tensor& x, const Tensor& weight, const Tensor& mean, const Tensor& rstd,
                   const Tensor& dy, const Tensor& dx, const Tensor& dweight, const Tensor& dbias,
                   Stream stream) {
  const int64_t n = x.size(-1);
  const int64_t rows = x.numel() / n;
  visit_floating("norm_backward", x.dtype(), [&]<class T>(Type<T>) {
    using D = device_type<T>;
    using W = wide<D>;
    const bool aligned = aligned16(x, weight, dy, dx);
    visit_row<T>(aligned, n, [&]<class Row>(Type<Row>, dim3 block) {
      const unsigned blocks = backward_blocks(rows, block, x.device());
      const int64_t workers = int64_t{blocks} * block.y;
      const bool sums = dweight.defined() || dbias.defined();
      Tensor partial;
      if (sums) partial = Tensor::empty({2, workers, n}, dtype_of<W>, x.device());
      norm_backward_kernel<D, Row><<<blocks, block, 0, native(stream)>>>(
          pointer<T>(x), maybe<T>(weight), maybe<W>(mean), pointer<W>(rstd), pointer<T>(dy),
          pointer<T>(dx), maybe<W>(partial), rows, n);
      BS_CUDA_CHECK_LAUNCH("norm_backward");
      if (!sums) return;
      if (!Row::is_held) {
        const dim3 grid(static_cast<unsigned>(ceil_div(n, 256)), static_cast<unsigned>(workers));
        norm_columns_kernel<<<grid, 256, 0, native(stream)>>>(pointer<T>(x), maybe<W>(mean),
                                                              pointer<W>(rstd), pointer<T>(dy),
                                                              pointer<W>(partial), rows, n);
        BS_CUDA_CHECK_LAUNCH("norm_backward");
      }
      const dim3 grid(static_cast<unsigned>(ceil_div(n, 32)), 2);
      norm_finish_kernel<D><<<grid, dim3(32, 32), 0, native(stream)>>>(
          pointer<W>(partial), maybe<T>(dweight), maybe<T>(dbias), workers, n);
      BS_CUDA_CHECK_LAUNCH("norm_backward");
    });
  });
}

}  // namespace bs::cuda
