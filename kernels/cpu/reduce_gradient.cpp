#include <bs/kernels/cpu/elementwise.h>
#include <bs/kernels/cpu/vector_math.h>
#include <bs/kernels/reduce_gradient.h>

#include <limits>

namespace bs::cpu {

namespace {

template <class F>
void run(const char* op, const F& f, const Tensor& x, const Tensor& a, const Tensor& b,
         const Tensor& dx) {
  visit_wide(op, dx.dtype(), [&]<class W>(Type<W>) { map<W, W, W, W>(f, dx, x, a, b); });
}

}  // namespace

void var_backward(const Tensor& x, const Tensor& mean, const Tensor& factor, const Tensor& dx,
                  Stream) {
  const auto f = [](auto v, auto m, auto s) { return (v - m) * s; };
  run("var_backward", f, x, mean, factor, dx);
}

void vector_norm_backward(const Tensor& x, const Tensor& norm, const Tensor& dy, const Tensor& dx,
                          Stream) {
  const auto f = []<class W>(W v, W n, W d) { return n == 0 ? W(0) : v / n * d; };
  run("vector_norm_backward", f, x, norm, dy, dx);
}

void logsumexp_backward(const Tensor& x, const Tensor& y, const Tensor& dy, const Tensor& dx,
                        Stream) {
  const auto f = []<class W>(W v, W of, W d) {
    return v == -std::numeric_limits<W>::infinity() ? W(0) : d * math::exp(v - of);
  };
  run("logsumexp_backward", f, x, y, dy, dx);
}

}  // namespace bs::cpu
