#include <bs/kernels/linear.h>

#include <bs/kernels/copy.h>
#include <bs/kernels/fill.h>
#include <bs/kernels/matmul.h>
#include <bs/kernels/reduce.h>

namespace bs {

namespace {

void check_weight(const char* op, const Tensor& x, const Tensor& weight) {
  check_same_device(op, x, weight);
  check_same_dtype(op, x, weight);
  if (!is_floating(x.dtype())) detail::unsupported_dtype(op, x.dtype(), "f64, f32, f16 or bf16");
  BS_CHECK(x.rank() >= 1 && weight.rank() == 2 && x.size(-1) == weight.size(1),
           "{}: x {} and weight {} do not match: [..., in] and [out, in] are expected", op,
           x.shape(), weight.shape());
}

/// The extents of x but for the last.
Shape leading(const Tensor& x) { return x.shape().slice(0, x.rank() - 1); }

/// x [..., n] as one matrix of all its rows.
Tensor rows_of(const Tensor& x) { return reshape(x, {leading(x).product(), x.size(-1)}); }

/// The shape of the result for x [..., in].
Shape result_shape(const Tensor& x, const Tensor& weight) {
  Shape shape = x.shape();
  shape[-1] = weight.size(0);
  return shape;
}

}  // namespace

Tensor linear(const Tensor& x, const Tensor& weight, const Tensor& bias) {
  check_weight("linear", x, weight);
  const int64_t out = weight.size(0);
  if (bias.defined()) {
    check_same_device("linear", x, bias);
    check_same_dtype("linear", x, bias);
    BS_CHECK(bias.shape() == Shape{out}, "linear: bias {} for weight {}", bias.shape(),
             weight.shape());
  }
  const Tensor rows = rows_of(x);
  const Tensor y = Tensor::empty({rows.size(0), out}, x.dtype(), x.device());
  if (y.numel() > 0) {
    if (rows.size(1) > 0) {
      BS_DISPATCH_WORK(x.device(), Work::product(y, rows.size(1)), linear, rows, weight, bias, y);
    } else if (bias.defined()) {
      copy(bias.expand(y.shape()), y);
    } else {
      fill(y, 0);
    }
  }
  return y.view(result_shape(x, weight));
}

LinearGrads linear_backward(const Tensor& x, const Tensor& weight, const Tensor& dy,
                            LinearWants wants) {
  BS_CHECK(weight.defined() || !wants.x, "linear_backward: dx is wanted without a weight");
  BS_CHECK(x.defined() || !wants.weight, "linear_backward: dW is wanted without x");
  if (x.defined() && weight.defined()) check_weight("linear_backward", x, weight);
  for (const Tensor& factor : {x, weight}) {
    if (!factor.defined()) continue;
    check_same_device("linear_backward", factor, dy);
    check_same_dtype("linear_backward", factor, dy);
  }
  BS_CHECK(dy.rank() >= 1 && (!weight.defined() || dy.size(-1) == weight.size(0)) &&
               (!x.defined() || leading(dy) == leading(x)),
           "linear_backward: dy {} for x {} and weight {}", dy.shape(),
           x.defined() ? x.shape() : Shape(), weight.defined() ? weight.shape() : Shape());
  const Tensor gradients = rows_of(dy);
  LinearGrads grads;
  if (wants.x) {
    Shape shape = dy.shape();
    shape[-1] = weight.size(1);
    grads.x = matmul(gradients, weight).view(shape);
  }
  if (wants.weight) grads.weight = matmul(gradients.transpose(0, 1), rows_of(x));
  if (wants.bias) grads.bias = sum(gradients, Dims{0});
  return grads;
}

}  // namespace bs
