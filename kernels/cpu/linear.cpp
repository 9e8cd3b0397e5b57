#include <bs/kernels/copy.h>
#include <bs/kernels/cpu/convert.h>
#include <bs/kernels/cpu/gemm.h>
#include <bs/kernels/linear.h>

namespace bs::cpu {

void linear(const Tensor& x, const Tensor& weight, const Tensor& bias, const Tensor& y, Stream) {
  // The product is added to y, which holds the bias already: no pass of its own, one rounding.
  if (bias.defined()) bs::copy(bias.expand(y.shape()), y);
  const auto stride = [](const Tensor& t, int axis) { return t.strides()[axis]; };
  visit_floating("linear", y.dtype(), [&]<class T>(Type<T>) {
    using W = Wide<T>;
    parallel_gemm<W, T, T>(1, y.size(0), y.size(1), x.size(1), W(1), x.data<T>(), 0, stride(x, 0),
                           stride(x, 1), weight.data<T>(), 0, stride(weight, 1), stride(weight, 0),
                           W(bias.defined() ? 1 : 0), y.data<T>(), 0, stride(y, 0), stride(y, 1));
  });
}

}  // namespace bs::cpu
