#include <bs/nn/lstm_composed.h>

#include <bs/autograd/activation.h>
#include <bs/autograd/binary.h>
#include <bs/autograd/block_float.h>
#include <bs/autograd/block_sparse_matmul.h>
#include <bs/autograd/concat.h>
#include <bs/autograd/copy.h>
#include <bs/autograd/linear.h>
#include <bs/autograd/norm.h>
#include <bs/autograd/saved_tensor.h>
#include <bs/autograd/tape.h>
#include <bs/autograd/view.h>
#include <bs/autograd/where.h>
#include <bs/kernels/binary.h>
#include <bs/kernels/compare.h>
#include <bs/kernels/copy.h>
#include <bs/kernels/fill.h>
#include <bs/kernels/lstm_check.h>
#include <bs/kernels/random.h>
#include <bs/kernels/unary.h>

namespace bs::nn {

namespace {

/// clamp(offset + slope z, low, high), whose derivative is 0 where the result is at a bound.
Variable bounded(const Variable& z, double slope, double offset, double low, double high) {
  const Tensor y = clamp(add(mul(z.data(), slope), offset), low, high);
  return tape().record("bounded", {z}, y, [y = SavedTensor(y), slope, low, high](const Tensor& dy) {
    const Tensor inside = mul(cast(gt(y, low), dy.dtype()), cast(lt(y, high), dy.dtype()));
    return Grads{mul(mul(dy, inside), slope)};
  });
}

int64_t cells_of(const LSTMWeightVariables& w) {
  return (w.layout ? w.layout->height() : w.hh.size(0)) / 4;
}

class Composed {
 public:
  Composed(const Variable& x, const LSTMDirectionVariables& d, const Tensor& lengths,
           const LSTMNorms& norms, bool quantize, Generator& generator)
      : d_(d),
        norms_(norms),
        quantize_(quantize),
        dtype_(x.dtype()),
        sums_(dtype_ == f64 ? f64 : f32),
        steps_(x.size(0)),
        batch_(x.size(1)),
        cells_(cells_of(d.weights)),
        width_(d.weights.hr.defined() ? d.weights.hr.size(0) : cells_),
        device_(x.device()) {
    recurrent_ = block(d.weights.hh);
    if (d.weights.hr.defined()) projection_ = block(d.weights.hr);
    if (lengths.defined()) {
      bs::detail::check_lengths("lstm", x.data(), lengths);
      active_ = steps_within(lengths, x.data());
    }
    input_ = d.input.defined() ? within(d.input) : linear(block(within(x)), block(d.weights.ih));
    if (norms.ih.defined()) input_ = layer_norm(input_, norms.ih, {});
    for (const Variable& bias : {d.weights.bias_ih, d.weights.bias_hh})
      if (bias.defined()) input_ = input_ + coarse(bias);
    const LSTMRule& r = d.rule;
    if (!r.expected && r.zoneout_hidden > 0)
      keep_h_ = bernoulli(r.zoneout_hidden, {steps_, batch_, width_}, boolean, device_, generator);
    if (!r.expected && r.zoneout_cell > 0)
      keep_c_ = bernoulli(r.zoneout_cell, {steps_, batch_, cells_}, boolean, device_, generator);
  }

  LSTMStates run() {
    Variable h = d_.h0.defined() ? d_.h0 : zeros({batch_, width_}, dtype_, device_);
    Variable c = d_.c0.defined() ? cast(d_.c0, sums_) : zeros({batch_, cells_}, sums_, device_);
    std::vector<Variable> hidden(static_cast<size_t>(steps_)), cells(static_cast<size_t>(steps_));
    for (int64_t n = 0; n < steps_; ++n) {
      const int64_t t = d_.reverse ? steps_ - 1 - n : n;
      step(t, h, c);
      hidden[static_cast<size_t>(t)] = h;
      cells[static_cast<size_t>(t)] = c;
    }
    if (steps_ == 0)
      return {zeros({0, batch_, width_}, dtype_, device_),
              zeros({0, batch_, cells_}, sums_, device_), h, c};
    return {stack(hidden, 0), stack(cells, 0), h, c};
  }

 private:
  Variable coarse(const Variable& v) const { return quantize_ ? round_to(v, bf16) : v; }
  Variable block(const Variable& v) const { return quantize_ ? block_float(v) : v; }
  Variable gate(const Variable& z) const {
    return coarse(d_.rule.hard ? bounded(z, 0.125, 0.5, 0, 1) : sigmoid(z));
  }
  Variable squash(const Variable& z) const {
    return coarse(d_.rule.hard ? bounded(z, 1, 0, -1, 1) : tanh(z));
  }

  /// Zeros beyond a sequence's length: 0 times what else might stand there need not be 0.
  Variable within(const Variable& v) const { return active_.defined() ? where(active_, v, 0) : v; }

  Variable recurrent(const Variable& h) const {
    if (!d_.weights.layout) return linear(block(h), recurrent_);
    return dds(block(h), {d_.weights.layout, recurrent_}, {.b = true});
  }

  /// k before + (1 - k) after.
  Variable zoneout(int64_t t, double p, const Tensor& drawn, const Variable& before,
                   const Variable& after) const {
    if (p == 0) return after;
    if (d_.rule.expected) return before * p + after * (1 - p);
    return where(drawn.select(0, t), before, after);
  }

  void step(int64_t t, Variable& h, Variable& c) const {
    Variable sums = recurrent(h);
    if (norms_.hh.defined()) sums = layer_norm(sums, norms_.hh, {});
    const std::vector<Variable> z =
        chunk(coarse(cast(select(input_, 0, t), sums_) + cast(sums, sums_)), 4, 1);
    const Variable cell = coarse(gate(z[1]) * c + gate(z[0]) * squash(z[2]));
    Variable shown = cell;
    if (norms_.c.defined())
      shown = layer_norm(cell, cast(norms_.c, sums_), cast(norms_.c_bias, sums_));
    Variable out = cast(coarse(gate(z[3]) * squash(shown)), dtype_);
    if (projection_.defined()) out = coarse(linear(block(out), projection_));
    Variable next_h = zoneout(t, d_.rule.zoneout_hidden, keep_h_, h, out);
    Variable next_c = zoneout(t, d_.rule.zoneout_cell, keep_c_, c, cell);
    if (active_.defined()) {
      next_h = where(active_.select(0, t), next_h, h);
      next_c = where(active_.select(0, t), next_c, c);
    }
    h = next_h;
    c = next_c;
  }

  const LSTMDirectionVariables& d_;
  const LSTMNorms& norms_;
  bool quantize_;
  DType dtype_, sums_;
  int64_t steps_, batch_, cells_, width_;
  Device device_;
  Variable recurrent_, projection_, input_;
  Tensor active_;  ///< [steps, batch, 1]: whether a sequence goes on; undefined: all do
  Tensor keep_h_, keep_c_;
};

}  // namespace

LSTMStates composed_lstm(const Variable& x, const LSTMDirectionVariables& direction,
                         const Tensor& lengths, const LSTMNorms& norms, bool quantize,
                         Generator& generator) {
  return Composed(x, direction, lengths, norms, quantize, generator).run();
}

}  // namespace bs::nn
