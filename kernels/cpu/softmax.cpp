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
