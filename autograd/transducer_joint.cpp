#include <bs/autograd/tape.h>
#include <bs/autograd/transducer_joint.h>
#include <bs/kernels/accumulate.h>
#include <bs/kernels/copy.h>
#include <bs/kernels/fill.h>

namespace bs {

Variable transducer_joint(const Variable& f, const Variable& g, const Tensor& logit_lengths,
                          const Tensor& target_lengths, const TransducerJointOptions& options,
                          RandomState state) {
  return tape().record(
      "transducer_joint", {f, g},
      transducer_joint(f.data(), g.data(), logit_lengths, target_lengths, options, state),
      [x = f.data(), y = g.data(), logit_lengths, target_lengths, options,
       state](const Tensor& dh) {
        const auto [df, dg] =
            transducer_joint_backward(x, y, dh, logit_lengths, target_lengths, options, state);
        return Grads{df, dg};
      });
}

Variable transducer_joint(const Variable& f, const Variable& g, const Tensor& logit_lengths,
                          const Tensor& target_lengths, const TransducerJointOptions& options,
                          Generator& generator) {
  const RandomState state = options.dropout > 0 ? generator.next() : RandomState{};
  return transducer_joint(f, g, logit_lengths, target_lengths, options, state);
}

namespace {

/// Copies a part's gradient, or zeros, to where the whole's lies.
void keep(const Tensor& part, const Tensor& to) { part.defined() ? copy(part, to) : fill(to, 0); }

}  // namespace

Variable part_by_part(const Variable& f, const Variable& g, int64_t parts, const PartLoss& loss,
                      double scale) {
  const int64_t batch = f.size(0);
  BS_CHECK(g.size(0) == batch, "part_by_part: f {} and g {} of different batches", f.shape(),
           g.shape());
  BS_CHECK(parts >= 1 && parts <= batch, "part_by_part: {} parts of a batch of {}", parts, batch);
  const bool wanted = grad_enabled();
  const Tensor df = Tensor::empty_like(f.data());
  const Tensor dg = Tensor::empty_like(g.data());
  Tensor total;
  for (int64_t i = 0; i < parts; ++i) {
    const int64_t begin = batch * i / parts;
    const int64_t end = batch * (i + 1) / parts;
    const Variable f_part(f.data().slice(0, begin, end), wanted && f.requires_grad());
    const Variable g_part(g.data().slice(0, begin, end), wanted && g.requires_grad());
    const Variable part = loss(f_part, g_part, begin, end);
    if (part.requires_grad()) part.backward(full({}, scale, part.dtype(), part.data().device()));
    keep(f_part.grad(), df.slice(0, begin, end));
    keep(g_part.grad(), dg.slice(0, begin, end));
    if (i == 0) total = zeros({}, part.dtype(), part.data().device());
    accumulate(total, part.data());
  }
  return tape().record("part_by_part", {f, g}, total, [df, dg, scale](const Tensor& dloss) {
    if (dloss.device().is_cpu())  // a GPU is not waited for
      BS_CHECK(dloss.item() == scale,
               "part_by_part: a gradient of {}, but its parts went backward with {}", dloss.item(),
               scale);
    return Grads{df, dg};
  });
}

}  // namespace bs
