#include <bs/autograd/block_float.h>
#include <bs/autograd/tape.h>
#include <bs/kernels/copy.h>

namespace bs {

Variable block_float(const Variable& x, BlockFloat format) {
  return tape().record("block_float", {x}, block_float(x.data(), format),
                       [](const Tensor& dy) { return Grads{dy}; });
}

Variable round_to(const Variable& x, DType dtype) {
  return tape().record("round_to", {x}, cast(cast(x.data(), dtype), x.dtype()),
                       [](const Tensor& dy) { return Grads{dy}; });
}

}  // namespace bs
