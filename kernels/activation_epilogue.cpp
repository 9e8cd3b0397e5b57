#include <bs/kernels/activation_epilogue.h>

namespace bs::epilogue {

Value activated(Activation activation, const Value& x) {
  switch (activation) {
    case Activation::relu:
      return relu(x);
    case Activation::tanh:
      return tanh(x);
    case Activation::sigmoid:
      return sigmoid(x);
    case Activation::silu:
      return silu(x);
    case Activation::gelu:
      return gelu(x);
    case Activation::gelu_tanh:
      return gelu_tanh(x);
    default:
      return x;
  }
}

}  // namespace bs::epilogue
