#include <bs/kernels/cpu/elementwise.h>
#include <bs/kernels/cpu/parallel.h>
#include <bs/kernels/cpu/row_pieces.h>
#include <bs/kernels/cpu/vector_math.h>
#include <bs/kernels/reduce_gradient.h>
#include <bs/kernels/reduce_kinds.h>

#include <cmath>
#include <limits>

namespace bs::cpu {

namespace {

/// dx = f(x, a, b), a and b one a result.
template <class F>
void run(const char* op, const F& f, const Tensor& x, const Tensor& a, const Tensor& b,
         const Tensor& dx) {
  const Shape& shape = x.shape();
  visit_wide(op, dx.dtype(), [&]<class W>(Type<W>) {
    map<W, W, W, W>(f, dx, x, a.expand(shape), b.expand(shape));
  });
}

/// f of each result, in the dtype of sums.
template <class F, class... X>
Tensor of_results(const char* op, const F& f, const Tensor& first, const X&... x) {
  const DType wide = first.dtype() == f64 ? f64 : f32;
  Tensor y = Tensor::empty(first.shape(), wide, first.device());
  visit_wide(op, wide, [&]<class W>(Type<W>) {
    [&]<class... Each>(Type<Each>...) { map<W, Each...>(f, y, first, x...); }(
        Type<W>{}, (static_cast<void>(x), Type<W>{})...);
  });
  return y;
}

/// Room for what twins find themselves of x [outer, n, inner].
Tensor room(const Tensor& x) {
  return Tensor::empty({x.size(0), 1, x.size(2)}, x.dtype() == f64 ? f64 : f32, x.device());
}

Tensor mean_of(const Tensor& x, const Tensor& mean, Stream stream) {
  if (mean.defined()) return mean;
  Tensor own = room(x);
  sum(x, own, 1 / static_cast<double>(x.size(1)), stream);
  return own;
}

template <class W>
W norm_slope(W v, W norm, W d) {
  return norm == 0 ? W(0) : v / norm * d;
}

/// dx = dy / norm x with one quotient for the row, where that is a normal number: elsewhere, as
/// that of a gradient by a tiny norm, it would be infinite or of few bits.
template <class T, class W>
void norm_backward_row(const T* x, W norm, W dy, T* dx, int64_t n) {
  const W share = dy / norm;
  const bool is_normal = std::isnormal(share);
  for_pieces(n, [&](int64_t at, auto count) {
    RowPieceBuffer<T> in, out;
    const W* const v = in.read(x + at, count);
    W* const to = out.target(dx + at);
    if (is_normal) {
#pragma omp simd
      for (int64_t i = 0; i < count; ++i) to[i] = v[i] * share;
    } else {
      for (int64_t i = 0; i < count; ++i) to[i] = norm_slope(v[i], norm, dy);
    }
    out.write(dx + at, count);
  });
}

}  // namespace

void var_backward(const Tensor& x, const Tensor& dy, const Tensor& mean, const Tensor& dx,
                  double scale, Stream stream) {
  const auto f = [=]<class W>(W v, W m, W d) { return (v - m) * (W(scale) * d); };
  run("var_backward", f, x, mean_of(x, mean, stream), dy, dx);
}

void stddev_backward(const Tensor& x, const Tensor& y, const Tensor& dy, const Tensor& mean,
                     const Tensor& dx, double scale, Stream stream) {
  const auto share = [=]<class W>(W of, W d) { return of == 0 ? W(0) : d / of * W(scale); };
  const auto f = [](auto v, auto m, auto s) { return (v - m) * s; };
  run("stddev_backward", f, x, mean_of(x, mean, stream),
      of_results("stddev_backward", share, y, dy), dx);
}

void extremum_backward(const Tensor& x, const Tensor& y, const Tensor& dy, const Tensor& count,
                       const Tensor& dx, Stream stream) {
  Tensor equal = count;
  if (!count.defined()) count_equal(x, y, equal = room(x), stream);
  const auto share = [](auto d, auto n) { return d / n; };
  const auto f = []<class W>(W v, W of, W s) { return v == of ? s : W(0); };
  run("extremum_backward", f, x, y, of_results("extremum_backward", share, dy, equal), dx);
}

void vector_norm_backward(const Tensor& x, const Tensor& y, const Tensor& dy, const Tensor& dx,
                          Stream) {
  const bool of_rows = x.rank() == 3 && x.size(1) >= piece && y.numel() == x.size(0) &&
                       x.size(2) == 1 && x.is_contiguous();
  if (!of_rows) {
    const auto f = [](auto v, auto norm, auto d) { return norm_slope(v, norm, d); };
    return run("vector_norm_backward", f, x, y, dy, dx);
  }
  visit_floating("vector_norm_backward", x.dtype(), [&]<class T>(Type<T>) {
    using W = Wide<T>;
    const int64_t n = x.size(1);
    const T *from = x.data<T>(), *norms = y.data<T>(), *slopes = dy.data<T>();
    T* const to = dx.data<T>();
    parallel_for(x.size(0), elementwise_grain / n, [&](int64_t begin, int64_t end) {
      for (int64_t r = begin; r < end; ++r)
        norm_backward_row(from + r * n, convert<W>(norms[r]), convert<W>(slopes[r]), to + r * n, n);
    });
  });
}

void logsumexp_backward(const Tensor& x, const Tensor& y, const Tensor& dy, const Tensor& dx,
                        Stream) {
  const auto f = []<class W>(W v, W of, W d) {
    return v == -std::numeric_limits<W>::infinity() ? W(0) : d * math::exp(v - of);
  };
  run("logsumexp_backward", f, x, y, dy, dx);
}

}  // namespace bs::cpu
