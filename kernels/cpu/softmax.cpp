#include <bs/kernels/cpu/parallel.h>
#include <bs/kernels/cpu/rows.h>
#include <bs/kernels/cpu/vector_math.h>
#include <bs/kernels/softmax.h>

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

template <class W>
void softmax_backward_row(const W* y, const W* dy, W* dx, int64_t n) {
  const W dot = sum_of<W>(n, [=](int64_t i) { return y[i] * dy[i]; });
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
