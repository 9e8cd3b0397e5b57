#include <bs/autograd/soft_cross_entropy.h>

#include <bs/autograd/binary.h>
#include <bs/autograd/copy.h>
#include <bs/autograd/gather.h>
#include <bs/autograd/recorded.h>
#include <bs/autograd/reduce.h>
#include <bs/autograd/softmax.h>
#include <bs/autograd/unary.h>
#include <bs/autograd/view.h>
#include <bs/autograd/where.h>
#include <bs/kernels/binary.h>
#include <bs/kernels/compare.h>
#include <bs/kernels/copy.h>
#include <bs/kernels/gather.h>
#include <bs/kernels/reduce.h>
#include <bs/kernels/soft_cross_entropy.h>
#include <bs/kernels/where.h>

namespace bs {

namespace {

DType loss_dtype(const Variable& x) { return x.dtype() == f64 ? f64 : f32; }

Variable losses(const Variable& logits, const Tensor& given) {
  const SavedTensor weights(given);
  const auto definition = [weights](std::span<const Variable> in) {
    const Variable p = log_softmax(cast(in[0], weights.dtype()), -1);
    return -sum(where(eq(weights.get(), 0), 0, p * weights.get()), -1);
  };
  return tape().record(
      "soft_cross_entropy", {logits}, soft_cross_entropy(logits.data(), given),
      Twice{[x = SavedTensor(logits.data()), weights](const Tensor& dloss) {
              return Grads{soft_cross_entropy_backward(x, weights, dloss)};
            },
            [definition](const Recorded& r) { return by_definition(r, definition); }});
}

void check_targets(const char* op, const Variable& x, const Tensor& targets) {
  BS_CHECK(x.rank() >= 1 && targets.shape() == x.shape().slice(0, x.rank() - 1),
           "{}: targets {} for {}", op, targets.shape(), x.shape());
}

}  // namespace

Variable soft_cross_entropy(const Variable& logits, const Tensor& probabilities,
                            const CrossEntropyOptions& options) {
  const double s = options.label_smoothing;
  check_probabilities("soft_cross_entropy", logits.data(), probabilities, s);
  const Tensor wide = cast(probabilities, loss_dtype(logits));
  Variable rows =
      losses(logits, s == 0 ? wide : wide * (1 - s) + s / static_cast<double>(logits.size(-1)));
  if (options.reduction == Reduction::none) return rows;
  return options.reduction == Reduction::sum ? sum(rows) : mean(rows);
}

Variable weighted_cross_entropy(const Variable& logits, const Tensor& targets,
                                const Tensor& class_weights, const CrossEntropyOptions& options) {
  check_targets("weighted_cross_entropy", logits, targets);
  const DType wide = loss_dtype(logits);
  const int64_t v = logits.size(-1);
  Variable rows = losses(logits, target_weights(targets, v, class_weights, options, wide));
  if (options.reduction == Reduction::none) return rows;
  if (options.reduction == Reduction::sum) return sum(rows);
  return sum(rows) / target_weight_sum(targets, v, class_weights, options, wide);
}

Variable nll_loss(const Variable& log_probabilities, const Tensor& targets,
                  const Tensor& class_weights, const CrossEntropyOptions& options) {
  const char* op = "nll_loss";
  check_targets(op, log_probabilities, targets);
  const DType wide = loss_dtype(log_probabilities);
  const Tensor ignored = eq(targets, options.ignore_index);
  const Tensor safe = where(ignored, 0, targets);
  const Variable picked = squeeze(gather(log_probabilities, -1, safe.unsqueeze(-1)), -1);
  Variable rows = where(ignored, 0, neg(cast(picked, wide)));
  const Tensor counted = cast(eq(ignored, 0), wide);
  Tensor weights = counted;
  if (class_weights.defined()) {
    BS_CHECK(class_weights.shape() == Shape{log_probabilities.size(-1)},
             "{}: class weights {} for {} classes", op, class_weights.shape(),
             log_probabilities.size(-1));
    weights = counted * take(cast(class_weights, wide), safe);
    rows = rows * weights;
  }
  if (options.reduction == Reduction::none) return rows;
  return options.reduction == Reduction::sum ? sum(rows) : sum(rows) / sum(weights);
}

}  // namespace bs
