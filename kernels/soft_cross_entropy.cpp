#include <bs/kernels/soft_cross_entropy.h>

#include <bs/kernels/binary.h>
#include <bs/kernels/compare.h>
#include <bs/kernels/copy.h>
#include <bs/kernels/fill.h>
#include <bs/kernels/index_select.h>
#include <bs/kernels/nonzero.h>
#include <bs/kernels/reduce.h>
#include <bs/kernels/softmax.h>
#include <bs/kernels/where.h>

namespace bs {

namespace {

void check(const char* op, const Tensor& logits, const Tensor& weights) {
  if (!is_floating(logits.dtype()))
    detail::unsupported_dtype(op, logits.dtype(), "f64, f32, f16 or bf16");
  check_same_shape(op, logits, weights);
  check_same_device(op, logits, weights);
  BS_CHECK(logits.rank() >= 1 && logits.size(-1) > 0, "{}: logits {} have no classes", op,
           logits.shape());
}

void check_smoothing(const char* op, double s) {
  BS_CHECK(s >= 0 && s <= 1, "{}: label_smoothing {} is not within [0, 1]", op, s);
}

void check_target_dtype(const Tensor& targets) {
  if (targets.dtype() != i64 && targets.dtype() != i32)
    detail::unsupported_dtype("cross_entropy", targets.dtype(), "i64 or i32");
}

DType loss_dtype(DType dtype) { return dtype == f64 ? f64 : f32; }

/// As backends take them.
Tensor backend_weights(const Tensor& logits, const Tensor& weights) {
  const bool alike = weights.dtype() == logits.dtype();
  return contiguous(alike ? weights : cast(weights, loss_dtype(logits.dtype())));
}

/// The class weight of each row's target, 0 for ignored rows.
Tensor row_weights(const Tensor& targets, int64_t classes, const Tensor& class_weights,
                   const CrossEntropyOptions& options, DType dtype) {
  const char* op = "cross_entropy";
  check_target_dtype(targets);
  const Tensor ignored = eq(targets, options.ignore_index);
  const Tensor table = class_weights.defined() ? cast(class_weights, dtype)
                                               : ones({classes}, dtype, targets.device());
  BS_CHECK(table.shape() == Shape{classes}, "{}: class weights {} for {} classes", op,
           table.shape(), classes);
  const Tensor safe = where(ignored, 0, targets);
  const Tensor picked = index_select(table, 0, reshape(safe, {safe.numel()})).view(targets.shape());
  return where(ignored, 0, picked);
}

}  // namespace

void check_probabilities(const char* op, const Tensor& logits, const Tensor& probabilities,
                         double label_smoothing) {
  BS_CHECK(is_floating(probabilities.dtype()),
           "{}: probabilities {} for logits {} are {}; class numbers go to cross_entropy, 0 and 1 "
           "for each class need a cast",
           op, probabilities.shape(), logits.shape(), probabilities.dtype());
  check(op, logits, probabilities);
  check_smoothing(op, label_smoothing);
}

Tensor soft_cross_entropy(const Tensor& logits, const Tensor& weights) {
  check("soft_cross_entropy", logits, weights);
  const DType dtype = loss_dtype(logits.dtype());
  Tensor loss = Tensor::empty(logits.shape().slice(0, logits.rank() - 1), dtype, logits.device());
  if (loss.numel() > 0)
    BS_DISPATCH(loss.device(), soft_cross_entropy, contiguous(logits),
                backend_weights(logits, weights), loss);
  return loss;
}

Tensor soft_cross_entropy_backward(const Tensor& logits, const Tensor& weights,
                                   const Tensor& dloss) {
  const char* op = "soft_cross_entropy_backward";
  check(op, logits, weights);
  const Shape rows = logits.shape().slice(0, logits.rank() - 1);
  BS_CHECK(dloss.shape() == rows, "{}: dloss {} for logits {}", op, dloss.shape(), logits.shape());
  check_same_device(op, logits, dloss);
  Tensor dlogits = Tensor::empty(logits.shape(), logits.dtype(), logits.device());
  if (dlogits.numel() > 0)
    BS_DISPATCH(dlogits.device(), soft_cross_entropy_backward, contiguous(logits),
                backend_weights(logits, weights),
                contiguous(cast(dloss, loss_dtype(logits.dtype()))), dlogits);
  return dlogits;
}

Tensor target_weights(const Tensor& targets, int64_t classes, const Tensor& class_weights,
                      const CrossEntropyOptions& options, DType dtype) {
  const double s = options.label_smoothing, share = s / static_cast<double>(classes);
  check_smoothing("cross_entropy", s);
  check_target_dtype(targets);
  Shape shape = targets.shape();
  shape.push_back(classes);
  Tensor weights = Tensor::empty(shape, dtype, targets.device());
  // Numbers where classes weigh alike, by one launch in place of nine.
  Operand rows = Scalar(1 - s), shares = Scalar(s > 0 ? share : 0);
  if (class_weights.defined() || classes == 0) {
    const Tensor picked = row_weights(targets, classes, class_weights, options, dtype);
    rows = contiguous(mul(picked, 1 - s));
    if (s > 0 && classes > 0) shares = contiguous(mul(cast(class_weights, dtype), share));
  }
  if (weights.numel() > 0)
    BS_DISPATCH(weights.device(), target_weights, contiguous(targets), options.ignore_index, rows,
                shares, weights);
  return weights;
}

Tensor target_weight_sum(const Tensor& targets, int64_t classes, const Tensor& class_weights,
                         const CrossEntropyOptions& options, DType dtype) {
  return sum(row_weights(targets, classes, class_weights, options, dtype));
}

}  // namespace bs
