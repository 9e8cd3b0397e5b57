#include <bs/autograd/norm.h>

#include <bs/autograd/binary.h>
#include <bs/autograd/recorded.h>
#include <bs/autograd/reduce.h>
#include <bs/autograd/unary.h>
#include <bs/kernels/norm.h>

namespace bs {

namespace {

/// What backwards keep of a norm of the last axis.
struct Saved {
  SavedTensor x, weight;
  Tensor mean, rstd;  ///< without a mean it is an RMS norm
  double eps;
  bool wants_bias;

  /// The gradients for x, weight and bias, which an RMS norm has none of.
  Grads gradients(const Tensor& dy, const Tensor& dsum = {}) const {
    if (!mean.defined()) {
      NormGradients g = rms_norm_backward(x, weight, rstd, dy, dsum);
      return {g.dx, g.dweight};
    }
    NormGradients g = layer_norm_backward(x, weight, mean, rstd, dy, wants_bias, dsum);
    return {g.dx, g.dweight, g.dbias};
  }
  /// The norm in simple operations. `affine`: weight and bias. What was saved stands for a weight
  /// without a gradient; a bias without one changes no gradient.
  Variable definition(const Variable& from, std::span<const Variable> affine) const {
    const Variable centred = mean.defined() ? from - bs::mean(from, -1, true) : from;
    Variable y = centred * bs::rsqrt(bs::mean(centred * centred, -1, true) + eps);
    if (affine[0].defined() || weight.defined())
      y = y * (affine[0].defined() ? affine[0] : Variable(weight.get()));
    return affine.size() > 1 && affine[1].defined() ? joined(y, affine[1]) : y;
  }
};

/// Of x, weight and bias.
struct NormRule {
  Saved saved;

  Grads operator()(const Tensor& dy) const { return saved.gradients(dy); }
  VariableGrads again(const Recorded& r) const {
    return by_definition(r, [this](std::span<const Variable> in) {
      return saved.definition(in[0].defined() ? in[0] : Variable(saved.x.get()), in.subspan(1));
    });
  }
};

/// Of a, b, weight and bias: the sum of a and b, and its norm.
struct SumRule {
  Saved saved;

  Grads operator()(const Grads& dys) const {
    if (!dys[1].defined()) {
      Grads same{dys[0], dys[0], {}};
      if (saved.mean.defined()) same.emplace_back();
      return same;
    }
    Grads grads = saved.gradients(dys[1], dys[0]);
    grads.insert(grads.begin(), grads.front());
    return grads;
  }
  VariableGrads again(const Recorded& r) const {
    return by_definition(r, [this](std::span<const Variable> in) {
      Variable sum(saved.x.get());
      for (const Variable& part : in.first(2))
        if (part.defined()) sum = joined(sum, part);
      return std::vector<Variable>{sum, saved.definition(sum, in.subspan(2))};
    });
  }
};

SumAndNorm record_sum(const char* name, std::span<const Variable> inputs, const NormResult& r,
                      const Tensor& weight, double eps) {
  const bool wants_bias = inputs.size() > 3 && inputs[3].requires_grad();
  const std::vector<Variable> y = tape().record_many(
      name, inputs, {r.sum, r.y},
      SumRule{{SavedTensor(r.sum), SavedTensor(weight), r.mean, r.rstd, eps, wants_bias}});
  return {y[0], y[1]};
}

}  // namespace

Variable layer_norm(const Variable& x, const Variable& weight, const Variable& bias, double eps) {
  const Tensor w = data_of(weight);
  NormResult r = layer_norm(x.data(), w, data_of(bias), eps);
  return tape().record(
      "layer_norm", {x, weight, bias}, std::move(r.y),
      NormRule{{SavedTensor(x.data()), SavedTensor(w), r.mean, r.rstd, eps, bias.requires_grad()}});
}

Variable rms_norm(const Variable& x, const Variable& weight, double eps) {
  const Tensor w = data_of(weight);
  NormResult r = rms_norm(x.data(), w, eps);
  return tape().record(
      "rms_norm", {x, weight}, std::move(r.y),
      NormRule{{SavedTensor(x.data()), SavedTensor(w), Tensor(), r.rstd, eps, false}});
}

SumAndNorm add_layer_norm(const Variable& a, const Variable& b, const Variable& weight,
                          const Variable& bias, double eps) {
  const Tensor w = data_of(weight);
  NormResult r = b.defined() ? add_layer_norm(a.data(), b.data(), w, data_of(bias), eps)
                             : layer_norm(a.data(), w, data_of(bias), eps);
  if (!b.defined()) r.sum = a.data();
  const Variable inputs[] = {a, b, weight, bias};
  return record_sum("add_layer_norm", inputs, r, w, eps);
}

SumAndNorm add_rms_norm(const Variable& a, const Variable& b, const Variable& weight, double eps) {
  const Tensor w = data_of(weight);
  NormResult r =
      b.defined() ? add_rms_norm(a.data(), b.data(), w, eps) : rms_norm(a.data(), w, eps);
  if (!b.defined()) r.sum = a.data();
  const Variable inputs[] = {a, b, weight};
  return record_sum("add_rms_norm", inputs, r, w, eps);
}

}  // namespace bs
