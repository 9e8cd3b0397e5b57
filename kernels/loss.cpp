#include <bs/kernels/loss.h>

#include <bs/kernels/copy.h>
#include <bs/kernels/saved.h>

namespace bs {

namespace {

void check_inputs(const char* op, const Tensor& logits, const Tensor& targets,
                  const CrossEntropyOptions& options) {
  BS_CHECK(logits.rank() > 0 && logits.size(-1) > 0, "{}: logits {} have no classes", op,
           logits.shape());
  BS_CHECK(is_floating(logits.dtype()), "{}: logits of dtype {}", op, logits.dtype());
  BS_CHECK(targets.shape() == logits.shape().slice(0, logits.rank() - 1),
           "{}: targets {} for logits {}", op, targets.shape(), logits.shape());
  BS_CHECK(targets.dtype() == i64 || targets.dtype() == i32,
           "{}: targets of dtype {}, expected i64 or i32", op, targets.dtype());
  check_same_device(op, logits, targets);
  BS_CHECK(options.label_smoothing >= 0 && options.label_smoothing <= 1,
           "{}: label_smoothing {} is not within [0, 1]", op, options.label_smoothing);
}

/// The kernels trust sums and losses to have the sizes of the forward.
void check_result(const char* op, const Tensor& logits, const Tensor& targets,
                  const CrossEntropyResult& r, const CrossEntropyOptions& options) {
  const auto fits = [&](const Tensor& t, const Shape& shape) {
    return is_saved(t, shape, logits.dtype() == f64 ? f64 : f32, logits.device());
  };
  BS_CHECK(fits(r.lse, targets.shape()), "{}: lse {} for targets {}", op, r.lse.shape(),
           targets.shape());
  BS_CHECK(!r.lse_rest.defined() || fits(r.lse_rest, targets.shape()),
           "{}: lse_rest {} for targets {}", op, r.lse_rest.shape(), targets.shape());
  BS_CHECK(fits(r.loss, options.reduction == Reduction::none ? targets.shape() : Shape{}) &&
               (options.reduction != Reduction::mean || fits(r.weight, {})),
           "{}: loss {} and weight {} are not those of reduction {}", op, r.loss.shape(),
           r.weight.shape(), to_string(options.reduction));
}

}  // namespace

std::string to_string(Reduction reduction) {
  switch (reduction) {
    case Reduction::mean:
      return "mean";
    case Reduction::sum:
      return "sum";
    default:
      return "none";
  }
}

CrossEntropyResult cross_entropy(const Tensor& logits, const Tensor& targets,
                                 const CrossEntropyOptions& options) {
  check_inputs("cross_entropy", logits, targets, options);
  const DType dtype = logits.dtype() == f64 ? f64 : f32;
  const Tensor losses = Tensor::empty(targets.shape(), dtype, logits.device());
  CrossEntropyResult result;
  result.lse = Tensor::empty_like(losses);
  result.lse_rest = Tensor::empty_like(losses);
  if (options.reduction == Reduction::none) {
    result.loss = losses;
  } else {
    result.loss = Tensor::empty({}, dtype, logits.device());
  }
  if (options.reduction == Reduction::mean) result.weight = Tensor::empty_like(result.loss);
  BS_DISPATCH(logits.device(), cross_entropy, contiguous(logits), contiguous(targets), result.lse,
              result.lse_rest, losses,
              options.reduction == Reduction::none ? Tensor() : result.loss, result.weight,
              options);
  return result;
}

Tensor cross_entropy_backward(const Tensor& logits, const Tensor& targets,
                              const CrossEntropyResult& result, const Tensor& dloss,
                              const CrossEntropyOptions& options) {
  constexpr const char* op = "cross_entropy_backward";
  check_inputs(op, logits, targets, options);
  check_result(op, logits, targets, result, options);
  check_alike(op, result.loss, dloss);
  Tensor dlogits = Tensor::empty(logits.shape(), logits.dtype(), logits.device());
  if (logits.numel() > 0)
    BS_DISPATCH(logits.device(), cross_entropy_backward, contiguous(logits), contiguous(targets),
                result.lse, result.lse_rest, result.weight, contiguous(dloss), dlogits, options);
  return dlogits;
}

}  // namespace bs
