#include <bs/kernels/activation.h>
#include <bs/kernels/copy.h>
#include <bs/kernels/feed_forward.h>
#include <bs/kernels/linear.h>
#include <bs/kernels/matmul.h>
#include <bs/kernels/reduce.h>

namespace bs::cpu {

void linear_gelu(const Tensor& x, const Tensor& weight, const Tensor& bias, const Tensor& before,
                 const Tensor& y, Stream stream) {
  linear(x, weight, bias, before, stream);
  gelu(before, y, Gelu::tanh, stream);
}

void linear_gelu_backward(const Tensor& dy, const Tensor& weight, const Tensor& before,
                          const Tensor& dbefore, const Tensor& dbias, Stream stream) {
  const Tensor dhidden = Tensor::empty_like(before);
  matmul(dy, weight, dhidden, stream);
  gelu_backward(before, dhidden, dbefore, Gelu::tanh, stream);
  bs::copy(bs::sum(dbefore, Dims{0}), dbias);
}

}  // namespace bs::cpu
