#include <bs/kernels/transducer_loss.h>

#include <bs/kernels/copy.h>
#include <bs/kernels/fill.h>
#include <bs/kernels/saved.h>
#include <bs/lib/changes.h>

#include <cmath>
#include <limits>

namespace bs {

namespace {

void check_lengths(const char* op, const char* what, const Tensor& lengths, const Tensor& targets) {
  BS_CHECK(lengths.rank() == 1 && lengths.size(0) == targets.size(0), "{}: {} {} for targets {}",
           op, what, lengths.shape(), targets.shape());
  BS_CHECK(lengths.dtype() == i64 || lengths.dtype() == i32,
           "{}: {} of dtype {}, expected i64 or "
           "i32",
           op, what, lengths.dtype());
  check_same_device(op, lengths, targets);
}

/// The options with a blank that counts from the front.
TransducerLossOptions checked(const char* op, const TransducerSizes& sizes,
                              TransducerLossOptions options) {
  const int64_t classes = sizes.classes;
  BS_CHECK(options.blank >= -classes && options.blank < classes,
           "{}: blank {} is outside of {} classes", op, options.blank, classes);
  if (options.blank < 0) options.blank += classes;
  BS_CHECK(options.star_penalty >= 0, "{}: star_penalty {} is negative", op, options.star_penalty);
  BS_CHECK(std::isfinite(options.delay_penalty) && std::isfinite(options.eos_penalty) &&
               std::isfinite(options.star_penalty) && std::isfinite(options.fastemit_lambda),
           "{}: penalties {}, {}, {} and fastemit_lambda {} must be finite", op,
           options.delay_penalty, options.eos_penalty, options.star_penalty,
           options.fastemit_lambda);
  return options;
}

/// The kernels trust tables and sums to have the sizes of the forward.
void check_result(const char* op, const Tensor& logits, const TransducerSizes& sizes,
                  const TransducerLossResult& r) {
  const DType dtype = logits.dtype() == f64 ? f64 : f32;
  const Device device = logits.device();
  BS_CHECK(is_saved(r.lse, {sizes.rows}, dtype, device) &&
               is_saved(r.lattice, {4, sizes.cells(), dtype == f64 ? 2 : 1}, i64, device) &&
               is_saved(r.utterances, {sizes.batch + 1, 4}, i64, device),
           "{}: the result given is not that of these logits and targets", op);
}

}  // namespace

TransducerSizes transducer_sizes(const char* op, const Tensor& logits, const Tensor& targets) {
  BS_CHECK(logits.rank() == 4 || logits.rank() == 2,
           "{}: logits {}, expected [batch, frames, labels + 1, classes] or packed [rows, classes]",
           op, logits.shape());
  BS_CHECK(is_floating(logits.dtype()), "{}: logits of dtype {}", op, logits.dtype());
  BS_CHECK(logits.size(-1) > 0, "{}: logits {} have no classes", op, logits.shape());
  BS_CHECK(logits.size(-1) < std::numeric_limits<int32_t>::max(),
           "{}: logits {} have more than 2^31 classes", op, logits.shape());
  BS_CHECK(targets.rank() == 2, "{}: targets {}, expected [batch, labels]", op, targets.shape());
  BS_CHECK(targets.dtype() == i64 || targets.dtype() == i32,
           "{}: targets of dtype {}, expected i64 or i32", op, targets.dtype());
  check_same_device(op, logits, targets);
  const bool packed = logits.rank() == 2;
  BS_CHECK(packed || (logits.size(0) == targets.size(0) && logits.size(2) == targets.size(1) + 1),
           "{}: logits {} for targets {}", op, logits.shape(), targets.shape());
  BS_CHECK(packed || logits.size(1) * logits.size(2) <= std::numeric_limits<int32_t>::max(),
           "{}: logits {} have more than 2^31 rows an utterance", op, logits.shape());
  BS_CHECK(targets.size(0) > 0 || logits.numel() == 0, "{}: logits {} of no utterances", op,
           logits.shape());
  return {.batch = targets.size(0),
          .frames = packed ? logits.size(0) : logits.size(1),
          .labels = targets.size(1),
          .classes = logits.size(-1),
          .rows = logits.numel() / logits.size(-1),
          .packed = packed};
}

TransducerLossResult transducer_loss(const Tensor& logits, const Tensor& targets,
                                     const Tensor& logit_lengths, const Tensor& target_lengths,
                                     const TransducerLossOptions& options) {
  const char* op = "transducer_loss";
  const TransducerSizes sizes = transducer_sizes(op, logits, targets);
  check_lengths(op, "logit_lengths", logit_lengths, targets);
  check_lengths(op, "target_lengths", target_lengths, targets);
  const TransducerLossOptions given = checked(op, sizes, options);
  const DType dtype = logits.dtype() == f64 ? f64 : f32;
  const Device device = logits.device();
  const Tensor losses = Tensor::empty({sizes.batch}, dtype, device);
  TransducerLossResult result;
  result.loss = options.reduction == Reduction::none ? losses : Tensor::empty({}, dtype, device);
  result.lse = Tensor::empty({sizes.rows}, dtype, device);
  result.lattice = Tensor::empty({4, sizes.cells(), dtype == f64 ? 2 : 1}, i64, device);
  result.utterances = Tensor::empty({sizes.batch + 1, 4}, i64, device);
  BS_DISPATCH(device, transducer_loss, contiguous(logits), contiguous(targets),
              contiguous(logit_lengths), contiguous(target_lengths), result, losses, given);
  return result;
}

Tensor transducer_loss_backward(const Tensor& logits, const Tensor& targets,
                                const TransducerLossResult& result, const Tensor& dloss,
                                const TransducerLossOptions& options, bool in_place) {
  const char* op = "transducer_loss_backward";
  const TransducerSizes sizes = transducer_sizes(op, logits, targets);
  const TransducerLossOptions given = checked(op, sizes, options);
  check_result(op, logits, sizes, result);
  const Shape losses = options.reduction == Reduction::none ? Shape{sizes.batch} : Shape{};
  BS_CHECK(is_saved(result.loss, losses, result.lse.dtype(), logits.device()),
           "{}: loss {} {} is not that of reduction {}", op, result.loss.dtype(),
           result.loss.shape(), to_string(options.reduction));
  check_alike(op, result.loss, dloss);
  BS_CHECK(!in_place || logits.is_contiguous(),
           "{}: logits {} with strides {} cannot be written over", op, logits.shape(),
           to_string(logits.strides()));
  Tensor dlogits =
      in_place ? logits : Tensor::empty(logits.shape(), logits.dtype(), logits.device());
  if (in_place) note_change(logits, op);
  if (logits.numel() > 0)
    BS_DISPATCH(logits.device(), transducer_loss_backward, contiguous(logits), contiguous(targets),
                result, contiguous(dloss), dlogits, given);
  return dlogits;
}

Tensor transducer_posterior(const Tensor& logits, const Tensor& targets,
                            const TransducerLossResult& result) {
  const char* op = "transducer_posterior";
  const TransducerSizes sizes = transducer_sizes(op, logits, targets);
  check_result(op, logits, sizes, result);
  Tensor posterior =
      zeros(logits.shape().slice(0, logits.rank() - 1), result.lse.dtype(), logits.device());
  if (posterior.numel() > 0)
    BS_DISPATCH(logits.device(), transducer_posterior, sizes, result, posterior);
  return posterior;
}

Tensor transducer_alignment(const Tensor& logits, const Tensor& targets,
                            const TransducerLossResult& result) {
  const char* op = "transducer_alignment";
  const TransducerSizes sizes = transducer_sizes(op, logits, targets);
  check_result(op, logits, sizes, result);
  Tensor frames = full({sizes.batch, sizes.labels}, -1, i64, logits.device());
  if (frames.numel() > 0) BS_DISPATCH(logits.device(), transducer_alignment, sizes, result, frames);
  return frames;
}

}  // namespace bs
