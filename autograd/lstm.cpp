#include <bs/autograd/lstm.h>
#include <bs/autograd/saved_tensor.h>
#include <bs/autograd/tape.h>

namespace bs {

namespace {

LSTMDirection data_of(const LSTMDirectionVariables& d) {
  const LSTMWeightVariables& w = d.weights;
  return {{data_of(w.ih), data_of(w.hh), data_of(w.bias_ih), data_of(w.bias_hh), data_of(w.hr),
           w.layout},
          data_of(d.h0),
          data_of(d.c0),
          d.rule,
          d.reverse,
          data_of(d.input),
          d.dropout,
          d.dropped};
}

/// What the tape knows of one direction, in the order of `gradients_of`.
void list_inputs(const LSTMDirectionVariables& d, std::vector<Variable>& inputs) {
  const LSTMWeightVariables& w = d.weights;
  inputs.insert(inputs.end(), {w.ih, w.hh, w.bias_ih, w.bias_hh, w.hr, d.h0, d.c0, d.input});
}

void list_gradients(const LSTMGrads& g, Grads& grads) {
  const LSTMWeights& w = g.weights;
  grads.insert(grads.end(), {w.ih, w.hh, w.bias_ih, w.bias_hh, w.hr, g.h0, g.c0, g.input});
}

/// What leaves an operation for each direction: y, c, h_n and c_n.
constexpr size_t states = 4;

void list_states(const LSTMResult& r, std::vector<Tensor>& outputs) {
  outputs.insert(outputs.end(), {r.y, r.c, r.h_n, r.c_n});
}

/// Those of direction `i`, as list_states() put them.
template <class T>
std::span<const T, states> states_of(const std::vector<T>& all, size_t i) {
  return std::span(all).subspan(states * i).template first<states>();
}

LSTMUpstream upstream_of(std::span<const Tensor, states> dy) {
  return {.y = dy[0], .h_n = dy[2], .c = dy[1], .c_n = dy[3]};
}

LSTMStates named(std::span<const Variable, states> v) {
  return {.y = v[0], .c = v[1], .h_n = v[2], .c_n = v[3]};
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
  std::vector<Variable> saved{x};
  for (const LSTMDirectionVariables& d : directions) {
    LSTMDirectionVariables kept = d;
    kept.input = {};
    list_inputs(kept, saved);
  }
  // Backward wants the extents of an input alone, which the gates have.
  for (size_t i = 0; i < given.size(); ++i)
    if (given[i].input.defined()) given[i].input = results[i].gates;
  std::vector<Tensor> outputs;
  for (const LSTMResult& r : results) list_states(r, outputs);
  saved.insert(saved.end(), outputs.begin(), outputs.end());  // backward reads their memory
  const std::vector<Variable> recorded = tape().record_many(
      name, inputs, outputs,
      [x = x.data(), watched = SavedInputs(saved), given, lengths = SavedTensor(lengths), results,
       wants, backward](const Grads& dys) {
        watched.check();
        std::vector<LSTMUpstream> upstream;
        for (size_t i = 0; i < given.size(); ++i)
          upstream.push_back(upstream_of(states_of(dys, i)));
        const LSTMBackward all = backward(x, given, lengths, results, upstream, wants);
        Grads grads{all.x};
        for (const LSTMGrads& g : all.directions) list_gradients(g, grads);
        return grads;
      });
  std::vector<LSTMStates> all;
  for (size_t i = 0; i < given.size(); ++i) all.push_back(named(states_of(recorded, i)));
  return all;
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
