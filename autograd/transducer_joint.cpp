#include <bs/autograd/transducer_joint.h>

#include <bs/autograd/saved_tensor.h>
#include <bs/autograd/tape.h>
#include <bs/kernels/accumulate.h>
#include <bs/kernels/binary.h>
#include <bs/kernels/copy.h>
#include <bs/kernels/fill.h>

namespace bs {

Variable transducer_joint(const Variable& f, const Variable& g, const Tensor& logit_lengths,
                          const Tensor& target_lengths, const TransducerJointOptions& options,
                          RandomState state) {
  Tensor kept;
  const Tensor h =
      transducer_joint(f.data(), g.data(), logit_lengths, target_lengths, options, state, &kept);
  return tape().record(
      "transducer_joint", {f, g}, h,
      [x = SavedTensor(f.data()), y = SavedTensor(g.data()),
       logit_lengths = SavedTensor(logit_lengths), target_lengths = SavedTensor(target_lengths),
       options, kept](const Tensor& dh) {
        const auto [df, dg] =
            transducer_joint_backward(x, y, dh, logit_lengths, target_lengths, options, kept);
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

using Variables = std::vector<Variable>;

/// Copies a part's gradient, or zeros, to where the whole's lies.
void keep(const Tensor& part, const Tensor& to) { part.defined() ? copy(part, to) : fill(to, 0); }

/// The same variables for a graph of their own.
Variables leaves(const Variables& variables, int64_t begin, int64_t end) {
  Variables out;
  for (const Variable& v : variables)
    out.emplace_back(end < 0 ? v.data() : v.data().slice(0, begin, end),
                     grad_enabled() && v.requires_grad());
  return out;
}

/// gradient * factor with one rounding.
Tensor scaled(const Tensor& gradient, const Tensor& factor) {
  return gradient.defined() ? cast(mul(gradient, factor), gradient.dtype()) : gradient;
}

}  // namespace

Variable part_by_part(const Variables& cut, const Variables& whole, int64_t parts,
                      const PartLoss& loss, double scale) {
  BS_CHECK(!cut.empty(), "part_by_part: nothing to cut");
  const int64_t batch = cut[0].size(0);
  for (const Variable& v : cut)
    BS_CHECK(v.size(0) == batch, "part_by_part: {} and {} of different batches", cut[0].shape(),
             v.shape());
  BS_CHECK(parts >= 1 && parts <= batch, "part_by_part: {} parts of a batch of {}", parts, batch);
  BS_CHECK(scale != 0, "part_by_part: a scale of zero");
  const Variables shared = leaves(whole, 0, -1);
  Grads gradients;
  for (const Variable& v : cut)
    gradients.push_back(grad_enabled() && v.requires_grad() ? Tensor::empty_like(v.data())
                                                            : Tensor());
  Tensor total;
  for (int64_t i = 0; i < parts; ++i) {
    const int64_t begin = detail::part_begin(batch, parts, i);
    const int64_t end = detail::part_begin(batch, parts, i + 1);
    const Variables own = leaves(cut, begin, end);
    const Variable part = loss(own, shared, begin, end);
    if (part.requires_grad()) part.backward(full({}, scale, part.dtype(), part.device()));
    for (size_t k = 0; k < own.size(); ++k)
      if (gradients[k].defined()) keep(own[k].grad(), gradients[k].slice(0, begin, end));
    if (i == 0) total = zeros({}, part.dtype(), part.device());
    accumulate(total, part.data());
  }
  for (const Variable& v : shared) gradients.push_back(v.grad());
  Variables inputs = cut;
  inputs.insert(inputs.end(), whole.begin(), whole.end());
  return tape().record("part_by_part", inputs, total, [gradients, scale](const Tensor& dloss) {
    const Tensor factor = div(dloss, scale);  // one, where the gradient is the expected one
    Grads out;
    for (const Tensor& gradient : gradients) out.push_back(scaled(gradient, factor));
    return out;
  });
}

}  // namespace bs
