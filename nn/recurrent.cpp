#include <bs/nn/recurrent.h>

#include <bs/autograd/concat.h>
#include <bs/autograd/dropout.h>
#include <bs/autograd/view.h>
#include <bs/autograd/where.h>
#include <bs/kernels/lstm.h>
#include <bs/nn/init.h>

#include <cmath>

namespace bs::nn {

namespace {

void start(const RecurrentWeightVariables& w, int64_t hidden) {
  const double bound = 1 / std::sqrt(static_cast<double>(hidden));
  for (const Variable& v : {w.ih, w.hh, w.bias_ih, w.bias_hh})
    if (v.defined()) init::uniform(v.data(), -bound, bound);
}

}  // namespace

Recurrent::Recurrent(const Extents& extents) : shape_(extents) {
  const Extents& e = shape_;
  BS_CHECK(is_extent(e.input) && is_extent(e.hidden) && e.layers > 0 && e.layers <= most_layers,
           "{}: {} layers from {} features to {} cells", e.name, e.layers, e.input, e.hidden);
  BS_CHECK(e.dropout >= 0 && e.dropout <= 1, "{}: probability {} is not in [0, 1]", e.name,
           e.dropout);
  for (int layer = 0; layer < e.layers; ++layer)
    for (int d = 0; d < directions(); ++d) {
      const std::string suffix = "_l" + std::to_string(layer) + (d == 1 ? "_reverse" : "");
      const auto parameter = [&](const char* name, const Shape& shape, bool wanted = true) {
        return register_parameter(name + suffix,
                                  wanted ? Tensor::empty(shape, e.dtype, e.device) : Tensor());
      };
      const int64_t sums = e.gates * e.hidden;
      RecurrentWeightVariables w;
      w.ih = parameter("weight_ih", {sums, layer == 0 ? e.input : directions() * e.hidden});
      w.hh = parameter("weight_hh", {sums, e.hidden});
      w.bias_ih = parameter("bias_ih", {sums}, e.bias);
      w.bias_hh = parameter("bias_hh", {sums}, e.bias);
      start(w, e.hidden);
      weights.push_back(w);
    }
}

std::vector<RecurrentDirectionVariables> Recurrent::parts(int layer, const Variable& h0) const {
  BS_CHECK(!weights.empty(), "{}: the layer was moved away", shape_.name);
  std::vector<RecurrentDirectionVariables> parts;
  for (int d = 0; d < directions(); ++d) {
    const int index = layer * directions() + d;
    parts.push_back({.weights = weights[static_cast<size_t>(index)],
                     .h0 = h0.defined() ? select(h0, 0, index) : h0,
                     .reverse = d == 1});
  }
  return parts;
}

Recurrent::Output Recurrent::forward(const Variable& x, const Variable& h0,
                                     const Tensor& lengths) const {
  const Extents& e = shape_;
  const bool single = x.rank() == 2;
  BS_CHECK((single || x.rank() == 3) && x.size(-1) == e.input, "{}: x {} for {} input features",
           e.name, x.shape(), e.input);
  const int batch_axis = e.batch_first ? 0 : 1;
  if (single) {
    BS_CHECK(!lengths.defined(), "{}: lengths for one sequence {}", e.name, x.shape());
    const Output out = forward(unsqueeze(x, batch_axis), h0.defined() ? unsqueeze(h0, 1) : h0);
    return {squeeze(out.y, batch_axis), squeeze(out.h, 1)};
  }
  const Shape expected{int64_t{e.layers} * directions(), x.size(batch_axis), e.hidden};
  BS_CHECK(!h0.defined() || h0.shape() == expected, "{}: state h0 {} where {} is expected", e.name,
           h0.shape(), expected);
  Variable y = e.batch_first ? transpose(x, 0, 1) : x;
  std::vector<Variable> last;
  for (int layer = 0; layer < e.layers; ++layer) {
    if (layer > 0 && training())
      y = dropout(y, e.dropout, e.generator ? *e.generator : default_generator());
    const std::vector<RecurrentStates> states = run(y, parts(layer, h0), lengths);
    y = directions() == 1 ? states[0].y : concat({states[0].y, states[1].y}, 2);
    for (const RecurrentStates& s : states) last.push_back(s.h_n);
  }
  if (lengths.defined()) y = where(steps_within(lengths, y.data()), y, 0);
  return {e.batch_first ? transpose(y, 0, 1) : y, stack(last, 0)};
}

RecurrentCell::RecurrentCell(const Extents& e) : name_(e.name), input_(e.input) {
  BS_CHECK(is_extent(e.input) && is_extent(e.hidden), "{}: {} cells of {} features", e.name,
           e.hidden, e.input);
  const auto make = [&](const char* name, Variable& member, const Shape& shape, bool wanted) {
    register_parameter(name, member, wanted ? Tensor::empty(shape, e.dtype, e.device) : Tensor());
  };
  const int64_t sums = e.gates * e.hidden;
  make("weight_ih", weights.ih, {sums, e.input}, true);
  make("weight_hh", weights.hh, {sums, e.hidden}, true);
  make("bias_ih", weights.bias_ih, {sums}, e.bias);
  make("bias_hh", weights.bias_hh, {sums}, e.bias);
  start(weights, e.hidden);
}

Variable RecurrentCell::forward(const Variable& x, const Variable& h) const {
  BS_CHECK((x.rank() == 1 || x.rank() == 2) && x.size(-1) == input_,
           "{}: x {} for {} input features", name_, x.shape(), input_);
  const bool single = x.rank() == 1;
  const auto with_batch = [&](const Variable& v) {
    return single && v.defined() ? unsqueeze(v, 0) : v;
  };
  const RecurrentDirectionVariables step{.weights = weights, .h0 = with_batch(h)};
  const Variable after = run(unsqueeze(with_batch(x), 0), step)[0].h_n;
  return single ? squeeze(after, 0) : after;
}

}  // namespace bs::nn
