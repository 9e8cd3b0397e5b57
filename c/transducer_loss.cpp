#include <bs/kernels/transducer_loss.h>

#include <bs/c/handle.h>

struct bs_transducer {
  bs::Tensor logits, targets;
  bs::TransducerLossOptions options;
  bs::TransducerLossResult result;
};

namespace bs::c {

namespace {

Reduction reduction_of(const char* op, int reduction) {
  switch (reduction) {
    case BS_MEAN:
      return Reduction::mean;
    case BS_SUM:
      return Reduction::sum;
    case BS_NONE:
      return Reduction::none;
  }
  BS_THROW(Error, "{}: reduction {}", op, reduction);
}

}  // namespace

}  // namespace bs::c

using namespace bs::c;

bs_status bs_transducer_loss(const bs_tensor* logits, const bs_tensor* targets,
                             const bs_tensor* logit_lengths, const bs_tensor* target_lengths,
                             const bs_transducer_options* options, bs_tensor** loss,
                             bs_transducer** saved) {
  return guarded([&] {
    const char* op = "bs_transducer_loss";
    place(op, loss);
    clear(saved);
    BS_CHECK(options != nullptr, "{}: options is NULL", op);
    bs::TransducerLossOptions o;
    o.blank = options->blank;
    o.reduction = reduction_of(op, options->reduction);
    o.clamp = options->clamp;
    o.fastemit_lambda = options->fastemit_lambda;
    auto kept = std::make_unique<bs_transducer>(
        bs_transducer{value(op, "logits", logits), value(op, "targets", targets), o, {}});
    kept->result =
        bs::transducer_loss(kept->logits, kept->targets, value(op, "logit_lengths", logit_lengths),
                            value(op, "target_lengths", target_lengths), o);
    auto made = handle(kept->result.loss);
    give(loss, made);
    if (saved) *saved = kept.release();
  });
}

bs_status bs_transducer_loss_backward(const bs_transducer* saved, const bs_tensor* dloss,
                                      bs_tensor** dlogits) {
  return guarded([&] {
    const char* op = "bs_transducer_loss_backward";
    place(op, dlogits);
    BS_CHECK(saved != nullptr, "{}: saved is NULL", op);
    auto made = handle(bs::transducer_loss_backward(saved->logits, saved->targets, saved->result,
                                                    value(op, "dloss", dloss), saved->options));
    give(dlogits, made);
  });
}

void bs_transducer_free(bs_transducer* saved) { delete saved; }
