#include <bs/kernels/cpu/elementwise.h>
#include <bs/kernels/cpu/panel_vectors.h>
#include <bs/kernels/cpu/parallel.h>
#include <bs/kernels/cpu/rows.h>
#include <bs/kernels/cpu/vector_math.h>
#include <bs/kernels/softmax.h>

#include <algorithm>
#include <limits>

namespace bs::cpu {

namespace {

template <class W>
W largest(const W* x, int64_t n) {
  W top = -std::numeric_limits<W>::infinity();
#pragma omp simd reduction(max : top)
  for (int64_t i = 0; i < n; ++i) top = x[i] > top ? x[i] : top;
  return top;
}

template <class W>
void softmax_row(const W* x, W* y, int64_t n) {
  const W top = largest(x, n);
  const W scale = 1 / sum_of<W>(n, [=](int64_t i) { return y[i] = math::exp(x[i] - top); });
#pragma omp simd
  for (int64_t i = 0; i < n; ++i) y[i] *= scale;
}

template <class W>
void log_softmax_row(const W* x, W* y, int64_t n) {
  const W top = largest(x, n);
  const W rest = math::log(sum_of<W>(n, [=](int64_t i) { return math::exp(x[i] - top); }));
#pragma omp simd
  for (int64_t i = 0; i < n; ++i) y[i] = x[i] - top - rest;
}

/// In vectors of four sums: a sum of one would wait for each addition.
template <class W>
W dot_product(const W* a, const W* b, int64_t n) {
  using Vectors = Simd<W, vector_bytes>;
  using Loose = typename Vectors::Loose;
  constexpr int64_t lanes = vector_bytes / static_cast<int64_t>(sizeof(W));
  W total = 0;
  int64_t i = 0;
  while (n - i >= 4 * lanes) {
    typename Vectors::Aligned sums[4] = {};
    for (const int64_t end = std::min(n, i + run_of_sum); end - i >= 4 * lanes; i += 4 * lanes)
      for (int64_t k = 0; k < 4; ++k)
        sums[k] += *reinterpret_cast<const Loose*>(a + i + k * lanes) *
                   *reinterpret_cast<const Loose*>(b + i + k * lanes);
    const typename Vectors::Aligned sum = (sums[0] + sums[1]) + (sums[2] + sums[3]);
    W run = 0;
    for (int64_t lane = 0; lane < lanes; ++lane) run += sum[lane];
    total += run;
  }
  return total + sum_of<W>(n - i, [=](int64_t k) { return a[i + k] * b[i + k]; });
}

template <class W>
void softmax_backward_row(const W* y, const W* dy, W* dx, int64_t n) {
  const W dot = dot_product(y, dy, n);
#pragma omp simd
  for (int64_t i = 0; i < n; ++i) dx[i] = y[i] * (dy[i] - dot);
}

using WideHalves = loops::WideBlock<half>;
constexpr int64_t block = loops::block;

/// The dot product of whole blocks of rows of f16.
float dot_product_of_blocks(const half* a, const half* b, int64_t n) {
  using Vector = Simd<float, vector_bytes>::Aligned;
  constexpr int64_t lanes = vector_bytes / static_cast<int64_t>(sizeof(float));
  float total = 0;
  for (int64_t i = 0; i < n;) {
    Vector sums[4] = {};
    for (const int64_t end = std::min(n, i + run_of_sum); i < end; i += block) {
      const WideHalves x(a + i), z(b + i);
      for (int64_t k = 0; k < block; k += lanes)
        sums[k / lanes % 4] +=
            *reinterpret_cast<const Vector*>(x.at + k) * *reinterpret_cast<const Vector*>(z.at + k);
    }
    const Vector sum = (sums[0] + sums[1]) + (sums[2] + sums[3]);
    float run = 0;
    for (int64_t lane = 0; lane < lanes; ++lane) run += sum[lane];
    total += run;
  }
  return total;
}

/// Of f16, which is widened twice: kept for the second pass, it would go through memory. For bf16,
/// whose rounding takes more registers, that is slower.
void softmax_backward_blocks(const half* y, const half* dy, half* dx, int64_t n) {
  const int64_t rest = n % block, whole = n - rest;
  half last[3][block];  // what does not fill a block, with zeros behind it
  float dot = dot_product_of_blocks(y, dy, whole);
  if (rest > 0) {
    std::fill_n(std::copy_n(y + whole, rest, last[0]), block - rest, half());
    std::fill_n(std::copy_n(dy + whole, rest, last[1]), block - rest, half());
    dot += dot_product_of_blocks(last[0], last[1], block);
  }
  const auto f = [=](float v, float d) { return v * (d - dot); };
  for (int64_t i = 0; i < n; i += block) {
    const bool is_whole = i < whole;
    loops::compute_block(f, is_whole ? dx + i : last[2], WideHalves(is_whole ? y + i : last[0]),
                         WideHalves(is_whole ? dy + i : last[1]));
  }
  std::copy_n(last[2], rest, dx + whole);
}

template <class W>
void log_softmax_backward_row(const W* y, const W* dy, W* dx, int64_t n) {
  const W sum = sum_of<W>(n, [=](int64_t i) { return dy[i]; });
#pragma omp simd
  for (int64_t i = 0; i < n; ++i) dx[i] = dy[i] - math::exp(y[i]) * sum;
}

/// Calls `row(from, to, n)` for every row of x and y as rows of Wide<T>.
template <class T, class Row>
void for_rows(const Tensor& x, const Tensor& y, Row&& row) {
  const int64_t n = x.size(-1);
  const T* from = x.data<T>();
  T* to = y.data<T>();
  parallel_for(x.numel() / n, elementwise_grain / n, [&](int64_t begin, int64_t end) {
    RowBuffer<T> in(n), out(n);
    for (int64_t at = begin * n; at < end * n; at += n) {
      row(in.read(from + at, n), out.target(to + at), n);
      out.write(to + at, n);
    }
  });
}

/// The same with two inputs: `row(a, b, to, n)`.
template <class T, class Row>
void for_rows(const Tensor& a, const Tensor& b, const Tensor& y, Row&& row) {
  const int64_t n = a.size(-1);
  const T* first = a.data<T>();
  const T* second = b.data<T>();
  T* to = y.data<T>();
  parallel_for(a.numel() / n, elementwise_grain / n, [&](int64_t begin, int64_t end) {
    RowBuffer<T> in(n), other(n), out(n);
    for (int64_t at = begin * n; at < end * n; at += n) {
      row(in.read(first + at, n), other.read(second + at, n), out.target(to + at), n);
      out.write(to + at, n);
    }
  });
}

}  // namespace

void softmax(const Tensor& x, const Tensor& y, Stream) {
  visit_floating("softmax", x.dtype(),
                 [&]<class T>(Type<T>) { for_rows<T>(x, y, softmax_row<Wide<T>>); });
}

void softmax_backward(const Tensor& y, const Tensor& dy, const Tensor& dx, Stream) {
  const int64_t n = y.size(-1);
  if (y.dtype() == f16 && n >= 2 * block) {
    const half *const from = y.data<half>(), *const slopes = dy.data<half>();
    half* const to = dx.data<half>();
    return parallel_for(y.numel() / n, elementwise_grain / n, [&](int64_t begin, int64_t end) {
      for (int64_t at = begin * n; at < end * n; at += n)
        softmax_backward_blocks(from + at, slopes + at, to + at, n);
    });
  }
  visit_floating("softmax_backward", y.dtype(),
                 [&]<class T>(Type<T>) { for_rows<T>(y, dy, dx, softmax_backward_row<Wide<T>>); });
}

void log_softmax(const Tensor& x, const Tensor& y, Stream) {
  visit_floating("log_softmax", x.dtype(),
                 [&]<class T>(Type<T>) { for_rows<T>(x, y, log_softmax_row<Wide<T>>); });
}

void log_softmax_backward(const Tensor& y, const Tensor& dy, const Tensor& dx, Stream) {
  visit_floating("log_softmax_backward", y.dtype(), [&]<class T>(Type<T>) {
    for_rows<T>(y, dy, dx, log_softmax_backward_row<Wide<T>>);
  });
}

}  // namespace bs::cpu
