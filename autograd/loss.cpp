#include <bs/autograd/loss.h>

#include <bs/autograd/binary.h>
#include <bs/autograd/copy.h>
#include <bs/autograd/gather.h>
#include <bs/autograd/recorded.h>
#include <bs/autograd/reduce.h>
#include <bs/autograd/softmax.h>
#include <bs/autograd/unary.h>
#include <bs/autograd/view.h>
#include <bs/autograd/where.h>
#include <bs/kernels/compare.h>
#include <bs/kernels/where.h>

namespace bs {

namespace {

struct Rule {
  SavedTensor logits, targets;
  CrossEntropyResult result;
  CrossEntropyOptions options;

  Grads operator()(const Tensor& dloss) const {
    return {cross_entropy_backward(logits, targets, result, dloss, options)};
  }
  /// The loss in simple operations.
  Variable definition(const Variable& x) const {
    const Tensor ignored = eq(targets.get(), options.ignore_index);
    const Tensor classes = where(ignored, 0, targets.get()).unsqueeze(-1);
    const Variable p = log_softmax(cast(x, result.loss.dtype()), -1);
    Variable losses = squeeze(gather(p, -1, classes), -1) * -(1 - options.label_smoothing);
    if (options.label_smoothing != 0) losses = losses - mean(p, -1) * options.label_smoothing;
    losses = where(ignored, 0, losses);
    if (options.reduction == Reduction::none) return losses;
    return options.reduction == Reduction::sum ? sum(losses) : sum(losses) * result.weight;
  }
  VariableGrads again(const Recorded& r) const {
    return by_definition(r, [this](std::span<const Variable> in) { return definition(in[0]); });
  }
};

}  // namespace

Variable cross_entropy(const Variable& logits, const Tensor& targets,
                       const CrossEntropyOptions& options) {
  CrossEntropyResult result = cross_entropy(logits.data(), targets, options);
  return tape().record("cross_entropy", {logits}, result.loss,
                       Rule{SavedTensor(logits.data()), SavedTensor(targets), result, options});
}

}  // namespace bs
