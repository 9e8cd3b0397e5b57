#include <bs/kernels/cpu/elementwise.h>
#include <bs/kernels/cpu/vector_math.h>
#include <bs/kernels/reduce_gradient.h>
#include <bs/kernels/reduce_kinds.h>

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
  const auto f = []<class W>(W v, W n, W d) { return n == 0 ? W(0) : v / n * d; };
  run("vector_norm_backward", f, x, y, dy, dx);
}

void logsumexp_backward(const Tensor& x, const Tensor& y, const Tensor& dy, const Tensor& dx,
                        Stream) {
  const auto f = []<class W>(W v, W of, W d) {
    return v == -std::numeric_limits<W>::infinity() ? W(0) : d * math::exp(v - of);
  };
  run("logsumexp_backward", f, x, y, dy, dx);
}

}  // namespace bs::cpu
