#include <bs/kernels/cuda/kron/kron_library.h>

#include <bs/kernels/activation.h>
#include <bs/kernels/binary.h>
#include <bs/kernels/copy.h>
#include <bs/kernels/matmul.h>
#include <bs/kernels/reduce.h>

namespace bs::cuda {

namespace {

void activate(Activation f, const Tensor& y, Stream stream) {
  switch (f) {
    case Activation::none:
      return;
    case Activation::relu:
      return relu(y, y, stream);
    case Activation::tanh:
      return tanh(y, y, stream);
    case Activation::sigmoid:
      return sigmoid(y, y, stream);
    case Activation::silu:
      return silu(y, y, stream);
    case Activation::gelu:
      return gelu(y, y, Gelu::erf, stream);
    case Activation::gelu_tanh:
      return gelu(y, y, Gelu::tanh, stream);
  }
}

/// [groups, outer, extent, 1] as matrices of all rows.
Tensor rows_of(const Tensor& x) { return x.view({x.size(0), x.size(1), x.size(2)}); }

/// [groups, outer, extent, inner] as matrices [groups, extent, outer * inner].
Tensor lines_of(const Tensor& x) {
  if (x.size(1) == 1) return x.view({x.size(0), x.size(2), x.size(3)});
  return bs::contiguous(x.permute({0, 2, 1, 3}))
      .view({x.size(0), x.size(2), x.size(1) * x.size(3)});
}

}  // namespace

void kron_library_step(const Tensor& x, const Tensor& factor, const Tensor& y, Stream stream) {
  if (x.size(3) == 1) return matmul(rows_of(x), factor, rows_of(y), stream);
  const Tensor left = factor.transpose(1, 2).unsqueeze(1).expand(
      {x.size(0), x.size(1), factor.size(2), factor.size(1)});
  matmul(left, x, y, stream);
}

void kron_library_finish(const Tensor& bias, Activation activation, const Tensor& before,
                         const Tensor& y, Stream stream) {
  if (bias.defined()) add(y, bias.expand(y.shape()), y, stream);
  if (before.defined()) bs::copy(y, before);
  activate(activation, y, stream);
}

void kron_library_contract(const Tensor& x, const Tensor& dy, const Tensor& dfactor,
                           Stream stream) {
  if (x.size(3) == 1) return matmul(rows_of(x).transpose(1, 2), rows_of(dy), dfactor, stream);
  // Products of single rows and their sum move less than a change of the operands' order would.
  // But in 16 bits each of them would be rounded.
  const Shape each = {x.size(0), x.size(1), x.size(2), dy.size(2)};
  const bool fewer = each.product() <= x.numel() + dy.numel();
  if (x.size(1) > 1 && fewer && !is_low_precision(x.dtype())) {
    const Tensor products = Tensor::empty(each, x.dtype(), x.device());
    matmul(x, dy.transpose(2, 3), products, stream);
    const int64_t elements = x.size(2) * dy.size(2);
    return sum(products.view({x.size(0), x.size(1), elements}), dfactor.view({x.size(0), elements}),
               1, stream);
  }
  matmul(lines_of(x), lines_of(dy).transpose(1, 2), dfactor, stream);
}

}  // namespace bs::cuda
