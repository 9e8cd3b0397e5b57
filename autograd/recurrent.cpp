#include <bs/autograd/recurrent.h>

#include <bs/autograd/saved_tensor.h>
#include <bs/autograd/tape.h>

namespace bs::detail {

std::vector<RecurrentStates> record_recurrent(
    const char* name, const Variable& x, std::span<const RecurrentDirectionVariables> directions,
    const RecurrentForward& forward, const RecurrentGradient& backward) {
  std::vector<RecurrentDirection> given;
  std::vector<Variable> inputs{x};
  RecurrentWants wants{.x = x.requires_grad(), .weights = false};
  for (const RecurrentDirectionVariables& d : directions) {
    const RecurrentWeightVariables& w = d.weights;
    given.push_back({{data_of(w.ih), data_of(w.hh), data_of(w.bias_ih), data_of(w.bias_hh)},
                     data_of(d.h0),
                     d.reverse});
    inputs.insert(inputs.end(), {w.ih, w.hh, w.bias_ih, w.bias_hh, d.h0});
    for (const Variable& v : {w.ih, w.hh, w.bias_ih, w.bias_hh})
      wants.weights = wants.weights || v.requires_grad();
  }
  const std::vector<RecurrentResult> results = forward(x.data(), given);
  std::vector<Tensor> outputs;
  for (const RecurrentResult& r : results) outputs.insert(outputs.end(), {r.y, r.h_n});
  std::vector<Variable> watched = inputs;
  watched.insert(watched.end(), outputs.begin(), outputs.end());
  const std::vector<Variable> recorded = tape().record_many(
      name, inputs, outputs,
      [x = x.data(), saved = SavedInputs(watched), given, results, wants,
       backward](const Grads& dys) {
        saved.check();
        std::vector<RecurrentUpstream> upstream;
        for (size_t i = 0; i < given.size(); ++i)
          upstream.push_back({.y = dys[2 * i], .h_n = dys[2 * i + 1]});
        const RecurrentBackward all = backward(x, given, results, upstream, wants);
        Grads grads{all.x};
        for (const auto& [w, h0] : all.directions)
          grads.insert(grads.end(), {w.ih, w.hh, w.bias_ih, w.bias_hh, h0});
        return grads;
      });
  std::vector<RecurrentStates> states;
  states.reserve(given.size());
  for (size_t i = 0; i < given.size(); ++i)
    states.push_back({.y = recorded[2 * i], .h_n = recorded[2 * i + 1]});
  return states;
}

}  // namespace bs::detail
