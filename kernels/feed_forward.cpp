#include <bs/kernels/feed_forward.h>

#include <bs/kernels/activation.h>
#include <bs/kernels/copy.h>
#include <bs/kernels/fill.h>
#include <bs/kernels/linear.h>

namespace bs {

namespace {

void check_weights(const char* op, const Tensor& x, const FeedForwardWeights& w) {
  if (!is_floating(x.dtype())) detail::unsupported_dtype(op, x.dtype(), "f64, f32, f16 or bf16");
  for (const Tensor* t : {&w.weight1, &w.bias1, &w.weight2, &w.bias2}) {
    check_same_device(op, x, *t);
    check_same_dtype(op, x, *t);
  }
  const bool fit = x.rank() >= 1 && w.weight1.rank() == 2 && w.weight2.rank() == 2 &&
                   x.size(-1) == w.weight1.size(1) && w.weight2.size(1) == w.weight1.size(0) &&
                   w.bias1.shape() == Shape{w.weight1.size(0)} &&
                   w.bias2.shape() == Shape{w.weight2.size(0)};
  BS_CHECK(fit,
           "{}: x {}, weights {} and {}, biases {} and {} do not match: [..., in], [hidden, in], "
           "[out, hidden], [hidden] and [out] are expected",
           op, x.shape(), w.weight1.shape(), w.weight2.shape(), w.bias1.shape(), w.bias2.shape());
}

Shape with_last(const Tensor& x, int64_t size) {
  Shape shape = x.shape();
  shape[-1] = size;
  return shape;
}

/// x [..., n] as one matrix of all its rows.
Tensor rows_of(const Tensor& x) {
  return reshape(x, {x.shape().slice(0, x.rank() - 1).product(), x.size(-1)});
}

}  // namespace

FeedForwardResult feed_forward(const Tensor& x, const FeedForwardWeights& w) {
  check_weights("feed_forward", x, w);
  const Shape shape = with_last(x, w.weight1.size(0));
  const Tensor before = Tensor::empty(shape, x.dtype(), x.device());
  const Tensor hidden = Tensor::empty_like(before);
  if (before.numel() > 0) {
    if (x.size(-1) > 0) {
      BS_DISPATCH_WORK(x.device(), Work::product(before, x.size(-1)), linear_gelu, rows_of(x),
                       w.weight1, w.bias1, rows_of(before), rows_of(hidden));
    } else {
      copy(w.bias1.expand(shape), before);
      copy(gelu(before, Gelu::tanh), hidden);
    }
  }
  return {linear(hidden, w.weight2, w.bias2), before, hidden};
}

FeedForwardGrads feed_forward_backward(const Tensor& x, const FeedForwardWeights& w,
                                       const FeedForwardResult& forward, const Tensor& dy) {
  constexpr const char* op = "feed_forward_backward";
  check_weights(op, x, w);
  check_same_device(op, x, dy);
  check_same_dtype(op, x, dy);
  const Shape hidden_shape = with_last(x, w.weight1.size(0));
  BS_CHECK(dy.shape() == with_last(x, w.weight2.size(0)) &&
               forward.before.shape() == hidden_shape && forward.hidden.shape() == hidden_shape,
           "{}: dy {}, before {} and hidden {} for x {} and weights {} and {}", op, dy.shape(),
           forward.before.shape(), forward.hidden.shape(), x.shape(), w.weight1.shape(),
           w.weight2.shape());
  const LinearGrads second =
      linear_backward(forward.hidden, w.weight2, dy, {.x = false, .weight = true, .bias = true});
  Tensor dbefore, dbias1;
  if (dy.numel() > 0 && forward.before.numel() > 0) {
    dbefore = Tensor::empty(hidden_shape, x.dtype(), x.device());
    dbias1 = Tensor::empty(w.bias1.shape(), x.dtype(), x.device());
    BS_DISPATCH_WORK(x.device(), Work::product(dbefore, dy.size(-1)), linear_gelu_backward,
                     rows_of(dy), w.weight2, rows_of(forward.before), rows_of(dbefore), dbias1);
  } else {
    dbefore = zeros(hidden_shape, x.dtype(), x.device());
    dbias1 = zeros(w.bias1.shape(), x.dtype(), x.device());
  }
  const LinearGrads first =
      linear_backward(x, w.weight1, dbefore, {.x = true, .weight = true, .bias = false});
  return {first.x, first.weight, dbias1, second.weight, second.bias};
}

}  // namespace bs
