#include <bs/kernels/reduce_gradient.h>
#include <bs/kernels/reduce_kinds.h>
#include <bs/lib/cuda/grid.h>
#include <bs/kernels/cuda/device/tile/activation.cuh>
#include <bs/kernels/cuda/elementwise.cuh>
#include <bs/kernels/cuda/rows.cuh>

namespace bs::cuda {

// A gradient is a function of an element and of what a result's elements share. Threads find the
// latter once and go on along the elements. Rows that a block holds are read once, also where a
// mean or a count of theirs is needed first; others are reduced in a pass of their own.

namespace {

using device::Raw;
using device::wide;

/// What a result's elements share.
template <class W>
struct Share {
  W a, b, c;
};

/// What is to be known of a result's elements besides y and dy.
enum class Statistic { none, mean, count };

struct Deviation {
  static constexpr Statistic statistic = Statistic::mean;
  double scale;
  bool divided;  ///< by the result

  template <class W>
  __device__ Share<W> share(W y, W dy, W mean) const {
    const auto by = static_cast<W>(scale);
    if (!divided) return {mean, by * dy};
    return {mean, y == 0 ? W(0) : dy / y * by};
  }
  template <class T, class W = wide<T>>
  __device__ static W of(W x, const Share<W>& s) {
    return (x - s.a) * s.b;
  }
};

struct Extremum {
  static constexpr Statistic statistic = Statistic::count;

  template <class W>
  __device__ Share<W> share(W y, W dy, W count) const {
    return {y, dy / count};
  }
  template <class T, class W = wide<T>>
  __device__ static W of(W x, const Share<W>& s) {
    return x == s.a ? s.b : W(0);
  }
};

struct Norm {
  static constexpr Statistic statistic = Statistic::none;

  // x / y comes first, for dy / y may be infinite where the gradient isn't. So may the reciprocal
  // of a y near 0, which is raised together with x.
  template <class W>
  __device__ Share<W> share(W y, W dy, W) const {
    const W up = y < W(0x1p-64) ? W(0x1p64) : W(1);
    return {y == 0 ? W(0) : 1 / (y * up), y == 0 ? W(0) : dy, up};
  }
  template <class T, class W = wide<T>>
  __device__ static W of(W x, const Share<W>& s) {
    return x * s.c * s.a * s.b;
  }
};

struct LogSum {
  static constexpr Statistic statistic = Statistic::none;

  template <class W>
  __device__ Share<W> share(W y, W dy, W) const {
    return {y, dy};
  }
  template <class T, class W = wide<T>>
  __device__ static W of(W x, const Share<W>& s) {
    return x == -INFINITY ? W(0) : s.b * device::exp_of<T>(x - s.a);
  }
};

/// Results, their gradients, and a statistic of each; null where a gradient needs none.
template <class T>
struct Results {
  using W = wide<T>;
  const T *y, *dy;
  const W* statistic;

  /// Of N neighbours.
  template <int N, class F>
  __device__ void share(const F& f, int64_t at, Share<W> (&shares)[N]) const {
    W of_y[N], of_dy[N], of_statistic[N];
    get_over<N>(y ? y + at : nullptr, 0, W(0), of_y);
    get_over<N>(dy + at, 0, W(0), of_dy);
    get_over<N>(statistic ? statistic + at : nullptr, 0, W(0), of_statistic);
#pragma unroll
    for (int i = 0; i < N; ++i) shares[i] = f.share(of_y[i], of_dy[i], of_statistic[i]);
  }
};

/// A row a block, or a warp, which finds its mean or count.
template <class T, class Row, class F>
__global__ void __launch_bounds__(most_row_threads)
    held_rows_kernel(F f, const T* x, Results<T> results, T* dx, int64_t rows, int64_t n) {
  using W = wide<T>;
  constexpr int N = Row::N;
  constexpr bool counts = F::statistic == Statistic::count;
  const int64_t row = int64_t{blockIdx.x} * blockDim.y + threadIdx.y;
  const bool inside = row < rows;  // lanes outside take part in what the warp reduces
  const int64_t at = inside ? row : 0;
  Row in;
  in.load(x + at * n, n);
  const W y = results.y ? device::widen(results.y[at]) : W(0);
  W sum = 0;
  Row::for_each_pack(n, [&](int k, unsigned p) {
    W v[N];
    in.get(k, p, v);
#pragma unroll
    for (int i = 0; i < N; ++i) sum += !counts ? v[i] : v[i] == y ? W(1) : W(0);
  });
  sum = row_sum(sum);
  const Share<W> share =
      f.share(y, device::widen(results.dy[at]), counts ? sum : sum / static_cast<W>(n));
  Row::for_each_pack(n, [&](int k, unsigned p) {
    W v[N];
    in.get(k, p, v);
#pragma unroll
    for (int i = 0; i < N; ++i) v[i] = F::template of<T>(v[i], share);
    if (inside) store_pack(dx + row * n, p, v);
  });
}

constexpr int threads = 256;
constexpr int ahead = 4;  ///< loads of a thread on their way

/// Items first, first + by ... of `end`, `pitch` elements apart, each a pack of N. What they share,
/// M of them, `prepare` finds while the first are on their way.
template <class F, int N, int M, class T, class Prepare>
__device__ void walk(const T* x, T* dx, unsigned first, unsigned end, unsigned by, int64_t pitch,
                     Prepare prepare) {
  using W = wide<T>;
  Raw<T, N> raw[ahead];
  const auto load = [&](unsigned from) {
#pragma unroll
    for (int k = 0; k < ahead; ++k)
      if (from + k * by < end)
        raw[k] = *reinterpret_cast<const Raw<T, N>*>(x + int64_t{from + k * by} * pitch);
  };
  load(first);
  Share<W> shares[M];
  prepare(shares);
  for (unsigned from = first; from < end; from += ahead * by) {
    if (from != first) load(from);
#pragma unroll
    for (int k = 0; k < ahead; ++k) {
      if (from + k * by >= end) break;
      W v[N];
      device::widen_pack<T, N>(raw[k], v);
#pragma unroll
      for (int i = 0; i < N; ++i) v[i] = F::template of<T>(v[i], shares[M == 1 ? 0 : i]);
      store_pack<N>(dx + int64_t{from + k * by} * pitch, v);
    }
  }
}

/// Part blockIdx.y, of `length` packs, of rows of n; blockDim.x threads a row.
template <class T, int N, class F>
__global__ void __launch_bounds__(threads) rows_kernel(F f, const T* x, Results<T> results, T* dx,
                                                       int64_t rows, int64_t n, int64_t length) {
  const int64_t row = int64_t{blockIdx.x} * blockDim.y + threadIdx.y;
  if (row >= rows) return;
  const int64_t begin = blockIdx.y * length, here = min(length, n / N - begin);
  const int64_t at = row * n + begin * N;
  walk<F, N, 1>(x + at, dx + at, threadIdx.x, static_cast<unsigned>(here), blockDim.x, N,
                [&](Share<wide<T>>(&share)[1]) { results.template share<1>(f, row, share); });
}

/// Part blockIdx.y, of `length` rows, of matrices [n, inner]; blockDim.x threads take N
/// neighbouring columns each, blockDim.y threads share the rows.
template <class T, int N, class F>
__global__ void __launch_bounds__(threads)
    columns_kernel(F f, const T* x, Results<T> results, T* dx, int64_t n, int64_t inner,
                   int64_t groups, int64_t length) {
  const int64_t matrix = blockIdx.x / groups;
  const int64_t column = (blockIdx.x % groups * blockDim.x + threadIdx.x) * N;
  if (column >= inner) return;
  const int64_t begin = blockIdx.y * length, here = min(length, n - begin);
  const int64_t at = (matrix * n + begin) * inner + column;
  walk<F, N, N>(x + at, dx + at, threadIdx.y, static_cast<unsigned>(here), blockDim.y, inner,
                [&](Share<wide<T>>(&shares)[N]) {
                  results.template share<N>(f, matrix * inner + column, shares);
                });
}

/// How many of `all` items a part has whose threads go on `by` at a time.
int64_t part_length(int64_t all, int64_t by) {
  constexpr int64_t turns = 4, most_parts = 65535;
  return std::max(ahead * turns * by, ceil_div(all, most_parts));
}

template <class T, class F>
void along_rows(const char* op, const F& f, const Tensor& x, const Results<device_type<T>>& results,
                const Tensor& dx, Stream stream) {
  const int64_t rows = x.size(0), n = x.size(1);
  visit_pack<T>(aligned16(x, dx), n, [&]<int N>(std::integral_constant<int, N>) {
    unsigned width = 1;
    while (width < threads && width * ahead < n / N) width *= 2;
    const dim3 block(width, threads / width);
    const int64_t length = part_length(n / N, width);
    const dim3 grid(grid_of(op, ceil_div(rows, block.y)),
                    static_cast<unsigned>(ceil_div(n / N, length)));
    rows_kernel<device_type<T>, N><<<grid, block, 0, native(stream)>>>(
        f, pointer<T>(x), results, pointer<T>(dx), rows, n, length);
  });
}

template <class T, class F>
void along_columns(const char* op, const F& f, const Tensor& x,
                   const Results<device_type<T>>& results, const Tensor& dx, bool aligned,
                   Stream stream) {
  const int64_t n = x.size(1), inner = x.size(2);
  visit_pack<T>(aligned, inner, [&]<int N>(std::integral_constant<int, N>) {
    unsigned width = 1;
    while (width < threads && width * N < inner) width *= 2;
    const dim3 block(width, threads / width);
    const int64_t groups = ceil_div(inner, int64_t{width} * N), length = part_length(n, block.y);
    const dim3 grid(grid_of(op, x.size(0) * groups), static_cast<unsigned>(ceil_div(n, length)));
    columns_kernel<device_type<T>, N><<<grid, block, 0, native(stream)>>>(
        f, pointer<T>(x), results, pointer<T>(dx), n, inner, groups, length);
  });
}

/// Runs f over rows that blocks hold, and says whether they do.
template <class T, class F>
bool in_held_rows(const char* op, const F& f, const Tensor& x,
                  const Results<device_type<T>>& results, const Tensor& dx, Stream stream) {
  const int64_t rows = x.size(0), n = x.size(1);
  bool held = false;
  const auto run = [&]<class Row>(Type<Row>, dim3 block) {
    held = Row::is_held;
    if constexpr (Row::is_held)
      held_rows_kernel<device_type<T>, Row>
          <<<grid_of(op, ceil_div(rows, block.y)), block, 0, native(stream)>>>(
              f, pointer<T>(x), results, pointer<T>(dx), rows, n);
  };
  visit_shared_row<T, 128>(aligned16(x, dx), rows, n, x.device(), run);
  return held;
}

/// The mean or count of each result of x [outer, n, inner].
Tensor statistic_of(Statistic which, const Tensor& x, const Tensor& y, Stream stream) {
  const Tensor all =
      Tensor::empty({x.size(0), x.size(2)}, x.dtype() == f64 ? f64 : f32, x.device());
  if (which == Statistic::mean) sum(x, all, 1 / static_cast<double>(x.size(1)), stream);
  if (which == Statistic::count) count_equal(x, y, all, stream);
  return all;
}

/// The same for operands of any strides.
template <class T, class F>
struct OfElement {
  F f;
  using W = wide<T>;
  __device__ W operator()(W x, W y, W dy, W statistic) const {
    return F::template of<T>(x, f.share(y, dy, statistic));
  }
};

/// Whether x is dense [outer, n, inner] with a result for each n.
bool has_one_run(const Tensor& x, const Tensor& dy, const Tensor& dx) {
  return x.rank() == 3 && dy.size(0) == x.size(0) && dy.size(1) == 1 && dy.size(2) == x.size(2) &&
         x.is_contiguous() && dx.is_contiguous();
}

template <class F>
void run(const char* op, const F& f, const Tensor& x, const Tensor& y, const Tensor& dy,
         const Tensor& statistic, const Tensor& dx, Stream stream) {
  visit_floating(op, dx.dtype(), [&]<class T>(Type<T>) {
    using D = device_type<T>;
    using W = std::conditional_t<std::is_same_v<T, double>, double, float>;
    if (!has_one_run(x, dy, dx)) {
      const auto over = [&](const Tensor& t) {
        return t.defined() ? Operand(t.expand(x.shape())) : Operand(Scalar(0));
      };
      return map<T, T, T, T, W>(op, OfElement<D, F>{f}, dx, stream, x, over(y), over(dy),
                                over(statistic));
    }
    Results<D> results{maybe<T>(y), pointer<T>(dy), maybe<W>(statistic)};
    const bool rows = x.size(2) == 1,
               open = F::statistic != Statistic::none && !statistic.defined();
    if constexpr (F::statistic != Statistic::none)
      if (rows && open && in_held_rows<T>(op, f, x, results, dx, stream)) return;
    const Tensor own = open ? statistic_of(F::statistic, x, y, stream) : statistic;
    results.statistic = maybe<W>(own);
    if (rows) return along_rows<T>(op, f, x, results, dx, stream);
    along_columns<T>(op, f, x, results, dx, aligned16(x, y, dy, own, dx), stream);
  });
  BS_CUDA_CHECK_LAUNCH(op);
}

}  // namespace

void var_backward(const Tensor& x, const Tensor& dy, const Tensor& mean, const Tensor& dx,
                  double scale, Stream stream) {
  run("var_backward", Deviation{scale, false}, x, {}, dy, mean, dx, stream);
}

void stddev_backward(const Tensor& x, const Tensor& y, const Tensor& dy, const Tensor& mean,
                     const Tensor& dx, double scale, Stream stream) {
  run("stddev_backward", Deviation{scale, true}, x, y, dy, mean, dx, stream);
}

void extremum_backward(const Tensor& x, const Tensor& y, const Tensor& dy, const Tensor& count,
                       const Tensor& dx, Stream stream) {
  run("extremum_backward", Extremum{}, x, y, dy, count, dx, stream);
}

void vector_norm_backward(const Tensor& x, const Tensor& y, const Tensor& dy, const Tensor& dx,
                          Stream stream) {
  run("vector_norm_backward", Norm{}, x, y, dy, {}, dx, stream);
}

void logsumexp_backward(const Tensor& x, const Tensor& y, const Tensor& dy, const Tensor& dx,
                        Stream stream) {
  run("logsumexp_backward", LogSum{}, x, y, dy, {}, dx, stream);
}

}  // namespace bs::cuda
