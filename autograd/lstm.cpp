#include <bs/autograd/lstm.h>
#include <bs/autograd/tape.h>

namespace bs {

namespace {

Tensor data_of(const Variable& v) { return v.defined() ? v.data() : Tensor(); }

LSTMDirection data_of(const LSTMDirectionVariables& d) {
  const LSTMWeightVariables& w = d.weights;
  return {{data_of(w.ih), data_of(w.hh), data_of(w.bias_ih), data_of(w.bias_hh), data_of(w.hr),
           w.layout},
          data_of(d.h0),
          data_of(d.c0),
          d.rule,
          d.reverse};
}

/// What the tape knows of one direction, in the order of `gradients_of`.
void list_inputs(const LSTMDirectionVariables& d, std::vector<Variable>& inputs) {
  const LSTMWeightVariables& w = d.weights;
  inputs.insert(inputs.end(), {w.ih, w.hh, w.bias_ih, w.bias_hh, w.hr, d.h0, d.c0});
}

void list_gradients(const LSTMGrads& g, Grads& grads) {
  const LSTMWeights& w = g.weights;
  grads.insert(grads.end(), {w.ih, w.hh, w.bias_ih, w.bias_hh, w.hr, g.h0, g.c0});
}

using Forward = std::vector<LSTMResult>(const Tensor&, std::span<const LSTMDirection>,
                                        const Tensor&);
using Backward = LSTMBackward(const Tensor&, std::span<const LSTMDirection>, const Tensor&,
                              std::span<const LSTMResult>, std::span<const LSTMUpstream>,
                              LSTMWants);

std::vector<LSTMStates> record(const char* name, const Variable& x,
                               std::span<const LSTMDirectionVariables> directions,
                               const Tensor& lengths, Forward* forward, Backward* backward) {
  std::vector<LSTMDirection> given;
  std::vector<Variable> inputs{x};
  LSTMWants wants{.x = x.requires_grad(), .weights = false};
  for (const LSTMDirectionVariables& d : directions) {
    given.push_back(data_of(d));
    list_inputs(d, inputs);
    for (const Variable& w :
         {d.weights.ih, d.weights.hh, d.weights.bias_ih, d.weights.bias_hh, d.weights.hr})
      wants.weights = wants.weights || w.requires_grad();
  }
  const std::vector<LSTMResult> results = forward(x.data(), given, lengths);
  std::vector<Tensor> outputs;
  for (const LSTMResult& r : results) outputs.insert(outputs.end(), {r.y, r.c, r.h_n, r.c_n});
  const std::vector<Variable> states = tape().record_many(
      name, inputs, outputs,
      [x = x.data(), given, lengths, results, wants, backward](const Grads& dys) {
        std::vector<LSTMUpstream> upstream;
        for (size_t i = 0; i < given.size(); ++i)
          upstream.push_back({dys[4 * i], dys[4 * i + 2], dys[4 * i + 1], dys[4 * i + 3]});
        const LSTMBackward all = backward(x, given, lengths, results, upstream, wants);
        Grads grads{all.x};
        for (const LSTMGrads& g : all.directions) list_gradients(g, grads);
        return grads;
      });
  std::vector<LSTMStates> named;
  for (size_t i = 0; i < given.size(); ++i)
    named.push_back({states[4 * i], states[4 * i + 1], states[4 * i + 2], states[4 * i + 3]});
  return named;
}

}  // namespace

std::vector<LSTMStates> lstm(const Variable& x, std::span<const LSTMDirectionVariables> directions,
                             const Tensor& lengths) {
  return record("lstm", x, directions, lengths, lstm, lstm_backward);
}

std::vector<LSTMStates> lstm_layers(const Variable& x,
                                    std::span<const LSTMDirectionVariables> layers,
                                    const Tensor& lengths) {
  const auto forward = [](const Tensor& in, std::span<const LSTMDirection> given,
                          const Tensor& limits) { return lstm_layers(in, given, limits); };
  const auto backward = [](const Tensor& in, std::span<const LSTMDirection> given,
                           const Tensor& limits, std::span<const LSTMResult> results,
                           std::span<const LSTMUpstream> upstream, LSTMWants wants) {
    return lstm_layers_backward(in, given, limits, results, upstream, wants);
  };
  return record("lstm_layers", x, layers, lengths, forward, backward);
}

}  // namespace bs
