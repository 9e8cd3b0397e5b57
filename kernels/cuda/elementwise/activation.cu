#include <bs/kernels/activation.h>
#include <bs/kernels/cuda/device/tile/activation.cuh>
#include <bs/kernels/cuda/elementwise.cuh>

namespace bs::cuda {

namespace {

/// y = F(x...), all of y's dtype.
template <template <class> class F, class... X>
void run(const char* op, const Tensor& y, Stream stream, const X&... x) {
  visit_floating(op, y.dtype(),
                 [&]<class T>(Type<T>) { map_alike<T>(op, F<device_type<T>>{}, y, stream, x...); });
}

}  // namespace

void tanh(const Tensor& x, const Tensor& y, Stream stream) {
  run<device::Tanh>("tanh", y, stream, x);
}

void sigmoid(const Tensor& x, const Tensor& y, Stream stream) {
  run<device::Sigmoid>("sigmoid", y, stream, x);
}

void relu(const Tensor& x, const Tensor& y, Stream stream) {
  run<device::Relu>("relu", y, stream, x);
}

void gelu(const Tensor& x, const Tensor& y, Gelu form, Stream stream) {
  if (form == Gelu::erf) return run<device::GeluErf>("gelu", y, stream, x);
  run<device::GeluTanh>("gelu", y, stream, x);
}

void silu(const Tensor& x, const Tensor& y, Stream stream) {
  run<device::Silu>("silu", y, stream, x);
}

void tanh_backward(const Tensor& y, const Tensor& dy, const Tensor& dx, Stream stream) {
  run<device::TanhBackward>("tanh_backward", dx, stream, y, dy);
}

void sigmoid_backward(const Tensor& y, const Tensor& dy, const Tensor& dx, Stream stream) {
  run<device::SigmoidBackward>("sigmoid_backward", dx, stream, y, dy);
}

void relu_backward(const Tensor& y, const Tensor& dy, const Tensor& dx, Stream stream) {
  run<device::ReluBackward>("relu_backward", dx, stream, y, dy);
}

void gelu_backward(const Tensor& x, const Tensor& dy, const Tensor& dx, Gelu form, Stream stream) {
  if (form == Gelu::erf) return run<device::GeluErfBackward>("gelu_backward", dx, stream, x, dy);
  run<device::GeluTanhBackward>("gelu_backward", dx, stream, x, dy);
}

void silu_backward(const Tensor& x, const Tensor& dy, const Tensor& dx, Stream stream) {
  run<device::SiluBackward>("silu_backward", dx, stream, x, dy);
}

}  // namespace bs::cuda
