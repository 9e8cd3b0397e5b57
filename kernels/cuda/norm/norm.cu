#include <bs/kernels/norm.h>
#include <bs/lib/cuda/grid.h>
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

  /// Brings a row into `in`; a sum as it is when rounded, which is stored where `stores` says so.
  template <class Row>
  __device__ void load(int64_t row, int64_t n, bool stores, Row& in) const {
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
      if (stores) store_pack(sum + row * n, p, a);
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
  const int64_t mine = int64_t{blockIdx.x} * blockDim.y + threadIdx.y;
  const bool inside = mine < rows;  // lanes outside take part in what the warp reduces
  const int64_t row = inside ? mine : 0;
  Row in;
  if constexpr (!adds) input.added = nullptr;
  input.load(row, n, inside, in);
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
  W deviations = 0, squares = 0;
  for_each([&](unsigned, W(&v)[N]) {
#pragma unroll
    for (int i = 0; i < N; ++i) {
      deviations += v[i] - mean;
      squares += (v[i] - mean) * (v[i] - mean);
    }
  });
  if (corrects_mean<T> && means) {
    const auto moments = corrected_moments(mean, deviations, squares, n);
    mean = moments.mean;
    squares = moments.squares;
  } else {
    squares = row_sum(squares);
  }
  const W rstd = 1 / sqrt(squares / n + eps);
  if (threadIdx.x == 0 && inside) {
    if (means) means[row] = mean;
    rstds[row] = rstd;
  }
  for_each([&](unsigned p, W(&v)[N]) {
    W factor[N], shift[N];
    get_over(weight, p, W(1), factor);
    get_over(bias, p, W(0), shift);
#pragma unroll
    for (int i = 0; i < N; ++i) v[i] = (v[i] - mean) * rstd * factor[i] + shift[i];
    if (inside) store_pack(y + row * n, p, v);
  });
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
    const auto run = [&]<class Row>(Type<Row>, dim3 block) {
      const unsigned grid = grid_of("norm", ceil_div(rows, block.y));
      const Input<D> input{pointer<T>(x), maybe<T>(added), maybe<T>(to.sum)};
      const auto kernel = added.defined() ? norm_kernel<D, Row, true> : norm_kernel<D, Row, false>;
      kernel<<<grid, block, 0, native(stream)>>>(input, maybe<T>(weight), maybe<T>(bias),
                                                 pointer<T>(to.y), maybe<W>(to.mean),
                                                 pointer<W>(to.rstd), rows, n, static_cast<W>(eps));
    };
    if (visit_rows_of_lanes<T>(aligned, rows, n, x.device(), run)) return;
    // Half as much a thread lets more warps in, where that holds a row.
    constexpr int half = 64;
    if (n <= int64_t{most_row_threads} * half / int64_t{sizeof(T)}) {
      visit_short_row<T, half>(aligned, rows, n, x.device(), run);
    } else {
      visit_short_row<T, 2 * half>(aligned, rows, n, x.device(), run);
    }
  });
  BS_CUDA_CHECK_LAUNCH("norm");
}

}  // namespace bs::cuda
