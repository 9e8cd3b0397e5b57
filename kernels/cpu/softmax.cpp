#include <bs/kernels/cpu/parallel.h>
#include <bs/kernels/softmax.h>

#include <cmath>
#include <limits>

namespace bs::cpu {

namespace {

/// Sums and exponentials of 16-bit types are kept in float.
template <class T>
using Wide = std::conditional_t<std::is_same_v<T, double>, double, float>;

template <class T>
void softmax_row(const T* x, T* y, int64_t n) {
  using W = Wide<T>;
  W top = -std::numeric_limits<W>::infinity();
  for (int64_t i = 0; i < n; ++i) top = std::max(top, static_cast<W>(x[i]));
  W sum = 0;
  for (int64_t i = 0; i < n; ++i) sum += std::exp(static_cast<W>(x[i]) - top);
  for (int64_t i = 0; i < n; ++i) y[i] = T(std::exp(static_cast<W>(x[i]) - top) / sum);
}

template <class T>
void softmax_backward_row(const T* y, const T* dy, T* dx, int64_t n) {
  using W = Wide<T>;
  W dot = 0;
  for (int64_t i = 0; i < n; ++i) dot += static_cast<W>(y[i]) * static_cast<W>(dy[i]);
  for (int64_t i = 0; i < n; ++i) dx[i] = T(static_cast<W>(y[i]) * (static_cast<W>(dy[i]) - dot));
}

}  // namespace

void softmax(const Tensor& x, const Tensor& y, Stream) {
  visit_floating("softmax", x.dtype(), [&]<class T>(Type<T>) {
    const int64_t n = x.size(-1);
    const T* from = x.data<T>();
    T* to = y.data<T>();
    parallel_for(x.numel() / n, elementwise_grain / n, [=](int64_t begin, int64_t end) {
      for (int64_t row = begin; row < end; ++row) softmax_row(from + row * n, to + row * n, n);
    });
  });
}

void softmax_backward(const Tensor& y, const Tensor& dy, const Tensor& dx, Stream) {
  visit_floating("softmax_backward", y.dtype(), [&]<class T>(Type<T>) {
    const int64_t n = y.size(-1);
    const T* out = y.data<T>();
    const T* gradient = dy.data<T>();
    T* to = dx.data<T>();
    parallel_for(y.numel() / n, elementwise_grain / n, [=](int64_t begin, int64_t end) {
      for (int64_t row = begin; row < end; ++row)
        softmax_backward_row(out + row * n, gradient + row * n, to + row * n, n);
    });
  });
}

}  // namespace bs::cpu
