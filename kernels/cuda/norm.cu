#include <bs/kernels/norm.h>
#include <bs/kernels/cuda/rows.cuh>

namespace bs::cuda {

namespace {

using device::narrow;
using device::Pack;
using device::wide;
using device::widen;

template <class T, int N>
__device__ wide<T> element(const T* vector, int pack, int i, wide<T> absent) {
  return vector ? widen(reinterpret_cast<const Pack<T, N>*>(vector)[pack].at[i]) : absent;
}

/// One row for blockDim.x threads, which hold all of it in registers: one read, one write.
template <class T, int N>
__global__ void __launch_bounds__(most_row_threads)
    norm_kernel(const T* x, const T* weight, const T* bias, T* y, wide<T>* means, wide<T>* rstds,
                int64_t rows, int n, wide<T> eps) {
  using W = wide<T>;
  const int64_t row = int64_t{blockIdx.x} * blockDim.y + threadIdx.y;
  if (row >= rows) return;
  const int count = n / N;
  RowPart<T, N> part;
  part.load(x + row * n, count);
  W mean = 0;
  if (means) {
    W sum = 0;
#pragma unroll
    for (int k = 0; k < held<T, N>; ++k)
#pragma unroll
      for (int i = 0; i < N; ++i) sum += widen(part.packs[k].at[i]);
    mean = row_sum(sum) / n;
  }
  W squares = 0;
#pragma unroll
  for (int k = 0; k < held<T, N>; ++k)
    if (threadIdx.x + k * blockDim.x < count)
#pragma unroll
      for (int i = 0; i < N; ++i) {
        const W d = widen(part.packs[k].at[i]) - mean;
        squares += d * d;
      }
  const W rstd = 1 / sqrt(row_sum(squares) / n + eps);
  if (threadIdx.x == 0) {
    if (means) means[row] = mean;
    rstds[row] = rstd;
  }
  auto* to = reinterpret_cast<Pack<T, N>*>(y + row * n);
#pragma unroll
  for (int k = 0; k < held<T, N>; ++k) {
    const int p = threadIdx.x + k * blockDim.x;
    if (p >= count) break;
    Pack<T, N> out;
#pragma unroll
    for (int i = 0; i < N; ++i)
      out.at[i] =
          narrow<T>((widen(part.packs[k].at[i]) - mean) * rstd * element<T, N>(weight, p, i, W(1)) +
                    element<T, N>(bias, p, i, W(0)));
    to[p] = out;
  }
}

/// One block a row of any length, read three times.
template <class T>
__global__ void norm_long_kernel(const T* x, const T* weight, const T* bias, T* y, wide<T>* means,
                                 wide<T>* rstds, int64_t n, wide<T> eps) {
  using W = wide<T>;
  x += blockIdx.x * n;
  y += blockIdx.x * n;
  W mean = 0;
  if (means) {
    W sum = 0;
    for (int64_t i = threadIdx.x; i < n; i += blockDim.x) sum += widen(x[i]);
    mean = row_sum(sum) / n;
  }
  W squares = 0;
  for (int64_t i = threadIdx.x; i < n; i += blockDim.x) {
    const W d = widen(x[i]) - mean;
    squares += d * d;
  }
  const W rstd = 1 / sqrt(row_sum(squares) / n + eps);
  if (threadIdx.x == 0) {
    if (means) means[blockIdx.x] = mean;
    rstds[blockIdx.x] = rstd;
  }
  for (int64_t i = threadIdx.x; i < n; i += blockDim.x)
    y[i] = narrow<T>((widen(x[i]) - mean) * rstd * element<T, 1>(weight, i, 0, W(1)) +
                     element<T, 1>(bias, i, 0, W(0)));
}

/// dx of the rows that fall to these threads; each adds up its columns' dy * h and dy on the way,
/// and leaves the sums in a row of `partial` [2, workers, n], worker = the block's warp or itself.
template <class T, int N>
__global__ void __launch_bounds__(most_row_threads)
    norm_backward_kernel(const T* x, const T* weight, const wide<T>* means, const wide<T>* rstds,
                         const T* dy, T* dx, wide<T>* partial, int64_t rows, int n) {
  using W = wide<T>;
  const int count = n / N;
  const int64_t worker = int64_t{blockIdx.x} * blockDim.y + threadIdx.y;
  const int64_t workers = int64_t{gridDim.x} * blockDim.y;
  W dweight[held<T, N>][N] = {};
  W dbias[held<T, N>][N] = {};
  for (int64_t row = worker; row < rows; row += workers) {
    RowPart<T, N> in;
    RowPart<T, N> slope;
    in.load(x + row * n, count);
    slope.load(dy + row * n, count);
    const W mean = means ? means[row] : W(0);
    const W rstd = rstds[row];
    W sum = 0;
    W dot = 0;
#pragma unroll
    for (int k = 0; k < held<T, N>; ++k) {
      const int p = threadIdx.x + k * blockDim.x;
      if (p < count)
#pragma unroll
        for (int i = 0; i < N; ++i) {
          const W d = widen(slope.packs[k].at[i]);
          const W h = (widen(in.packs[k].at[i]) - mean) * rstd;
          const W g = d * element<T, N>(weight, p, i, W(1));
          sum += g;
          dot += g * h;
          dweight[k][i] += d * h;
          dbias[k][i] += d;
        }
    }
    const W offset = means ? row_sum(sum) / n : W(0);
    const W factor = row_sum(dot) / n;
    auto* to = reinterpret_cast<Pack<T, N>*>(dx + row * n);
#pragma unroll
    for (int k = 0; k < held<T, N>; ++k) {
      const int p = threadIdx.x + k * blockDim.x;
      if (p >= count) break;
      Pack<T, N> out;
#pragma unroll
      for (int i = 0; i < N; ++i) {
        const W h = (widen(in.packs[k].at[i]) - mean) * rstd;
        const W g = widen(slope.packs[k].at[i]) * element<T, N>(weight, p, i, W(1));
        out.at[i] = narrow<T>(rstd * (g - offset - h * factor));
      }
      to[p] = out;
    }
  }
  if (!partial) return;
#pragma unroll
  for (int k = 0; k < held<T, N>; ++k) {
    const int p = threadIdx.x + k * blockDim.x;
    if (p >= count) break;
#pragma unroll
    for (int i = 0; i < N; ++i) {
      partial[worker * n + p * N + i] = dweight[k][i];
      partial[(workers + worker) * n + p * N + i] = dbias[k][i];
    }
  }
}

/// dx of one row of any length, by one block.
template <class T>
__global__ void norm_backward_long_kernel(const T* x, const T* weight, const wide<T>* means,
                                          const wide<T>* rstds, const T* dy, T* dx, int64_t n) {
  using W = wide<T>;
  x += blockIdx.x * n;
  dy += blockIdx.x * n;
  const W mean = means ? means[blockIdx.x] : W(0);
  const W rstd = rstds[blockIdx.x];
  W sum = 0;
  W dot = 0;
  for (int64_t i = threadIdx.x; i < n; i += blockDim.x) {
    const W g = widen(dy[i]) * element<T, 1>(weight, i, 0, W(1));
    sum += g;
    dot += g * (widen(x[i]) - mean) * rstd;
  }
  const W offset = means ? row_sum(sum) / n : W(0);
  const W factor = row_sum(dot) / n;
  for (int64_t i = threadIdx.x; i < n; i += blockDim.x) {
    const W g = widen(dy[i]) * element<T, 1>(weight, i, 0, W(1));
    dx[blockIdx.x * n + i] = narrow<T>(rstd * (g - offset - (widen(x[i]) - mean) * rstd * factor));
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

template <class T, int N>
void launch_forward(const Tensor& x, const Tensor& weight, const Tensor& bias, const Tensor& y,
                    const Tensor& mean, const Tensor& rstd, double eps, Stream stream) {
  using W = wide<device_type<T>>;
  const int64_t n = x.size(-1);
  const int64_t rows = x.numel() / n;
  const dim3 block = row_block<T, N>(n);
  if (block.x > 0) {
    const auto grid = static_cast<unsigned>(ceil_div(rows, block.y));
    norm_kernel<device_type<T>, N><<<grid, block, 0, native(stream)>>>(
        pointer<T>(x), maybe<T>(weight), maybe<T>(bias), pointer<T>(y), maybe<W>(mean),
        pointer<W>(rstd), rows, static_cast<int>(n), static_cast<W>(eps));
  } else {
    norm_long_kernel<<<static_cast<unsigned>(rows), 1024, 0, native(stream)>>>(
        pointer<T>(x), maybe<T>(weight), maybe<T>(bias), pointer<T>(y), maybe<W>(mean),
        pointer<W>(rstd), n, static_cast<W>(eps));
  }
  BS_CUDA_CHECK_LAUNCH("norm");
}

/// Sums over rows are made in two stages: by each worker over its own rows, then over the workers.
template <class T, int N>
void launch_backward(const Tensor& x, const Tensor& weight, const Tensor& mean, const Tensor& rstd,
                     const Tensor& dy, const Tensor& dx, const Tensor& dweight, const Tensor& dbias,
                     Stream stream) {
  using W = wide<device_type<T>>;
  const int64_t n = x.size(-1);
  const int64_t rows = x.numel() / n;
  const dim3 block = row_block<T, N>(n);
  const bool sums = dweight.defined() || dbias.defined();
  // At least 16 rows a worker, so that partial sums stay small beside x.
  const int64_t per_block = std::max<unsigned>(block.y, 1);
  const unsigned blocks = grid_size(ceil_div(rows, 16), static_cast<int>(per_block), x.device(), 4);
  const int64_t workers = blocks * per_block;
  Tensor partial;
  if (sums) partial = Tensor::empty({2, workers, n}, dtype_of<W>, x.device());
  if (block.x > 0) {
    norm_backward_kernel<device_type<T>, N><<<blocks, block, 0, native(stream)>>>(
        pointer<T>(x), maybe<T>(weight), maybe<W>(mean), pointer<W>(rstd), pointer<T>(dy),
        pointer<T>(dx), maybe<W>(partial), rows, static_cast<int>(n));
  } else {
    norm_backward_long_kernel<<<static_cast<unsigned>(rows), 1024, 0, native(stream)>>>(
        pointer<T>(x), maybe<T>(weight), maybe<W>(mean), pointer<W>(rstd), pointer<T>(dy),
        pointer<T>(dx), n);
    const dim3 grid(static_cast<unsigned>(ceil_div(n, 256)), static_cast<unsigned>(workers));
    if (sums)
      norm_columns_kernel<<<grid, 256, 0, native(stream)>>>(pointer<T>(x), maybe<W>(mean),
                                                            pointer<W>(rstd), pointer<T>(dy),
                                                            pointer<W>(partial), rows, n);
  }
  BS_CUDA_CHECK_LAUNCH("norm_backward");
  if (!sums) return;
  const dim3 grid(static_cast<unsigned>(ceil_div(n, 32)), 2);
  norm_finish_kernel<device_type<T>><<<grid, dim3(32, 32), 0, native(stream)>>>(
      pointer<W>(partial), maybe<T>(dweight), maybe<T>(dbias), workers, n);
  BS_CUDA_CHECK_LAUNCH("norm_backward");
}

}  // namespace

void norm(const Tensor& x, const Tensor& weight, const Tensor& bias, const Tensor& y,
          const Tensor& mean, const Tensor& rstd, double eps, Stream stream) {
  const bool aligned = aligned16(x, weight, bias, y);
  visit_floating("norm", x.dtype(), [&]<class T>(Type<T>) {
    visit_pack<T>(aligned, x.size(-1), [&]<int N>(std::integral_constant<int, N>) {
      launch_forward<T, N>(x, weight, bias, y, mean, rstd, eps, stream);
    });
  });
}

void norm_backward(const Tensor& x, const Tensor& weight, const Tensor& mean, const Tensor& rstd,
                   const Tensor& dy, const Tensor& dx, const Tensor& dweight, const Tensor& dbias,
                   Stream stream) {
  const bool aligned = aligned16(x, weight, dy, dx);
  visit_floating("norm_backward", x.dtype(), [&]<class T>(Type<T>) {
    visit_pack<T>(aligned, x.size(-1), [&]<int N>(std::integral_constant<int, N>) {
      launch_backward<T, N>(x, weight, mean, rstd, dy, dx, dweight, dbias, stream);
    });
  });
}

}  // namespace bs::cuda
