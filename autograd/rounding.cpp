#include <bs/autograd/rounding.h>

#include <bs/autograd/recorded.h>
#include <bs/kernels/copy.h>
#include <bs/kernels/fill.h>
#include <bs/kernels/reduce.h>
#include <bs/kernels/rounding.h>

namespace bs {

#define BS_STEP(function)                                                  \
  Variable function(const Variable& x) {                                   \
    return record_chosen(#function, x, function(x.data()),                 \
                         [](const Tensor& dy) { return zeros_like(dy); }); \
  }
BS_STEP(floor)
BS_STEP(ceil)
BS_STEP(round)
BS_STEP(trunc)
BS_STEP(sign)
#undef BS_STEP

Variable remainder(const Variable& a, const Variable& b) {
  const bool to_a = a.requires_grad(), to_b = b.requires_grad();
  return tape().record(
      "remainder", {a, b}, remainder(a.data(), b.data()),
      [to_a, to_b, a = SavedTensor(a.data()), b = SavedTensor(b.data())](const Tensor& dy) {
        Grads grads(2);
        if (to_a) grads[0] = cast(sum_to(dy, a.shape()), a.dtype());
        if (to_b) grads[1] = cast(sum_to(remainder_backward_b(a, b, dy), b.shape()), b.dtype());
        return grads;
      });
}

Variable remainder(const Variable& a, Scalar b) {
  return record_chosen("remainder", a, remainder(a.data(), b), [](const Tensor& dy) { return dy; });
}

}  // namespace bs
