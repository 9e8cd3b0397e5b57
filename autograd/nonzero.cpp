#include <bs/autograd/nonzero.h>

#include <bs/autograd/index_select.h>
#include <bs/autograd/view.h>
#include <bs/autograd/where.h>
#include <bs/kernels/nonzero.h>

namespace bs {

Variable masked_select(const Variable& x, const Tensor& mask) {
  BS_CHECK(broadcast_shapes("masked_select", x.shape(), mask.shape()) == x.shape(),
           "masked_select: mask {} for shape {}", mask.shape(), x.shape());
  const Variable flat = reshape(x, {x.data().numel()});
  return index_select(flat, 0, flat_nonzero(mask.expand(x.shape())));
}

Variable masked_fill(const Variable& x, const Tensor& mask, Scalar value) {
  return where(mask, value, x);
}

}  // namespace bs
