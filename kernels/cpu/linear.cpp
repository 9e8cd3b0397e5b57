#include <bs/kernels/copy.h>
#include <bs/kernels/cpu/convert.h>
#include <bs/kernels/cpu/gemm.h>
#include <bs/kernels/linear.h>

namespace bs::cpu {

void linear(const Tensor& x, const Tensor& weight, const Tensor& bias, const Tensor& y, Stream) {
  // The product is added to y, which holds the bias already: no pass of its own, one rounding.
  if (bias.defined()) bs::copy(bias.expand(y.shape()), y);
  visit_floating("linear", y.dtype(), [&]<class T>(Type<T>) {
    using W = Wide<T>;
    gemm<W, T, T>({.m = y.size(0), .n = y.size(1), .k = x.size(1)}, matrix_of<const T>(x),
                  matrix_of<const T>(weight).transposed(), W(bias.defined() ? 1 : 0),
                  matrix_of<T>(y));
  });
}

}  // namespace bs::cpu
