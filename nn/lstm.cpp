#include <bs/nn/lstm.h>

#include <bs/autograd/binary.h>
#include <bs/autograd/concat.h>
#include <bs/autograd/dropout.h>
#include <bs/autograd/view.h>
#include <bs/autograd/where.h>
#include <bs/kernels/copy.h>
#include <bs/nn/init.h>

#include <cmath>

namespace bs::nn {

namespace {

void check(const LSTMOptions& o) {
  BS_CHECK(is_extent(o.input) && is_extent(o.hidden) && o.layers > 0 && o.layers <= most_layers,
           "lstm: {} layers from {} features to {} cells", o.layers, o.input, o.hidden);
  BS_CHECK(o.projection >= 0 && o.projection < o.hidden,
           "lstm: a projection to {} outputs of {} cells; it must be smaller, or 0", o.projection,
           o.hidden);
  for (const double p : {o.dropout, o.rw_dropout, o.zoneout_hidden, o.zoneout_cell})
    BS_CHECK(p >= 0 && p <= 1, "lstm: probability {} is not in [0, 1]", p);
  BS_CHECK(o.input_factors >= 0, "lstm: {} factors of the input's weight", o.input_factors);
  BS_CHECK(o.input_factors == 0 || !o.quantize,
           "lstm: {} factors of the input's weight in block floating point", o.input_factors);
}

/// Starts parameters as PyTorch does; the bound of a block-sparse matrix counts what its blocks
/// see.
void init_direction(const LSTMWeightVariables& w, int64_t hidden,
                    const std::optional<double>& forget_bias) {
  const double bound = 1 / std::sqrt(static_cast<double>(hidden));
  const double density = w.layout ? w.layout->density() : 1;
  for (const Variable& v : {w.ih, w.bias_ih, w.bias_hh, w.hr})
    if (v.defined()) init::uniform(v.data(), -bound, bound);
  if (density > 0) {
    const double wider = bound / std::sqrt(density);
    init::uniform(w.hh.data(), -wider, wider);
  }
  if (!forget_bias || !w.bias_ih.defined()) return;
  init::constant(w.bias_ih.data().slice(0, hidden, 2 * hidden), *forget_bias);
  init::zeros(w.bias_hh.data().slice(0, hidden, 2 * hidden));
}

Variable state_of(const Variable& states, int64_t index) {
  return states.defined() ? select(states, 0, index) : states;
}

Variable stacked(const std::vector<LSTMStates>& states, Variable LSTMStates::*which) {
  std::vector<Variable> parts;
  parts.reserve(states.size());
  for (const LSTMStates& s : states) parts.push_back(s.*which);
  return stack(parts, 0);
}

}  // namespace

Variable LSTM::Output::all_h() const { return stacked(states, &LSTMStates::y); }
Variable LSTM::Output::all_c() const { return stacked(states, &LSTMStates::c); }

LSTM::LSTM(const Options& options) : options_(options) {
  check(options);
  for (int layer = 0; layer < options.layers; ++layer)
    for (int d = 0; d < directions(); ++d) {
      const std::string suffix = "_l" + std::to_string(layer) + (d == 1 ? "_reverse" : "");
      make_weights(suffix, layer == 0 ? options.input : directions() * outputs());
      make_input(suffix, layer == 0 ? options.input : directions() * outputs());
      make_norms(suffix);
    }
}

void LSTM::make_weights(const std::string& suffix, int64_t input) {
  const Options& o = options_;
  const auto parameter = [&](const char* name, const Shape& shape, bool wanted = true) {
    return register_parameter(name + suffix,
                              wanted ? Tensor::empty(shape, o.dtype, o.device) : Tensor());
  };
  LSTMWeightVariables w;
  w.layout = o.recurrent;
  w.ih = parameter("weight_ih", {4 * o.hidden, input}, o.input_factors == 0);
  if (w.layout) {
    BS_CHECK(w.layout->heads() == 1 && w.layout->height() == 4 * o.hidden &&
                 w.layout->width() == outputs(),
             "lstm: a layout of {} heads of [{}, {}] for recurrent weights [{}, {}]",
             w.layout->heads(), w.layout->height(), w.layout->width(), 4 * o.hidden, outputs());
    const int64_t block = w.layout->block();
    w.hh = parameter("weight_hh", {w.layout->nnz(), block, block});
  } else {
    w.hh = parameter("weight_hh", {4 * o.hidden, outputs()});
  }
  w.bias_ih = parameter("bias_ih", {4 * o.hidden}, o.bias);
  w.bias_hh = parameter("bias_hh", {4 * o.hidden}, o.bias);
  w.hr = parameter("weight_hr", {o.projection, o.hidden}, o.projection > 0);
  init_direction(w, o.hidden, o.forget_bias);
  weights.push_back(w);
}

void LSTM::make_input(const std::string& suffix, int64_t input) {
  const Options& o = options_;
  if (o.input_factors == 0) return;
  inputs.push_back(
      std::make_unique<KroneckerLinear>(KroneckerLinear::Options{.in = input,
                                                                 .out = 4 * o.hidden,
                                                                 .count = o.input_factors,
                                                                 .bias = false,
                                                                 .dtype = o.dtype,
                                                                 .device = o.device}));
  inputs.back()->init_normal(1 / std::sqrt(3 * static_cast<double>(o.hidden)));
  register_module("input" + suffix, *inputs.back());
}

void LSTM::make_norms(const std::string& suffix) {
  const Options& o = options_;
  const auto parameter = [&](const char* name, int64_t width, double value) {
    const Tensor data = Tensor::empty({width}, o.dtype, o.device);
    init::constant(data, value);
    return register_parameter(name + suffix, data);
  };
  LSTMNorms& n = norms.emplace_back();
  if (!o.layer_norm) return;
  n.ih = parameter("norm_ih", 4 * o.hidden, 1);
  n.hh = parameter("norm_hh", 4 * o.hidden, 1);
  n.c = parameter("norm_c", o.hidden, 1);
  n.c_bias = parameter("norm_c_bias", o.hidden, 0);
}

Generator& LSTM::generator() const {
  return options_.generator ? *options_.generator : default_generator();
}

bool LSTM::paired(int layer) const {
  return directions() == 1 && layer + 1 < options_.layers && !composed() && inputs.empty();
}

std::vector<LSTMDirectionVariables> LSTM::parts(int layer, const LSTMState& state) const {
  BS_CHECK(!weights.empty(), "lstm: the layer was moved away");
  std::vector<LSTMDirectionVariables> parts;
  for (int d = 0; d < directions(); ++d) {
    const int index = layer * directions() + d;
    LSTMDirectionVariables part{.weights = weights[static_cast<size_t>(index)],
                                .h0 = state_of(state.h, index),
                                .c0 = state_of(state.c, index),
                                .rule = {.hard = options_.hard,
                                         .zoneout_hidden = options_.zoneout_hidden,
                                         .zoneout_cell = options_.zoneout_cell,
                                         .expected = !training()},
                                .reverse = d == 1};
    if (training() && options_.rw_dropout > 0)
      part.weights.hh = dropout(part.weights.hh, options_.rw_dropout, generator());
    if (training() && !composed() && part.rule.zoneout()) part.rule.state = generator().next();
    parts.push_back(std::move(part));
  }
  return parts;
}

void LSTM::multiply_input(const Variable& x, int layer, const Tensor& lengths,
                          std::vector<LSTMDirectionVariables>& parts) const {
  // What stands in steps that a sequence has not, NaN say, must not reach a factor's gradient.
  const Variable clean = lengths.defined() ? where(steps_within(lengths, x.data()), x, 0) : x;
  for (size_t d = 0; d < parts.size(); ++d)
    parts[d].input = inputs[static_cast<size_t>(layer * directions()) + d]->forward(clean);
}

std::vector<LSTMStates> LSTM::layer(const Variable& x, int layer, const LSTMState& state,
                                    const Tensor& lengths) const {
  std::vector<LSTMDirectionVariables> now = parts(layer, state);
  if (paired(layer)) {
    const double p = training() ? options_.dropout : 0;
    const RandomState dropped = p > 0 ? generator().next() : RandomState{};
    now.push_back(parts(layer + 1, state)[0]);
    now.back().dropout = p;
    now.back().dropped = dropped;
    return lstm_layers(x, now, lengths);
  }
  if (!inputs.empty()) multiply_input(x, layer, lengths, now);
  if (!composed()) return lstm(inputs.empty() ? x : x.detach(), now, lengths);
  std::vector<LSTMStates> states;
  states.reserve(now.size());
  for (const LSTMDirectionVariables& part : now) {
    const size_t index = static_cast<size_t>(layer * directions()) + states.size();
    states.push_back(composed_lstm(x, part, lengths, norms[index], options_.quantize, generator()));
  }
  return states;
}

LSTM::Output LSTM::forward(const Variable& x, const LSTMState& state, const Tensor& lengths) const {
  const bool single = x.rank() == 2;
  BS_CHECK((single || x.rank() == 3) && x.size(-1) == options_.input,
           "lstm: x {} for {} input features", x.shape(), options_.input);
  if (single) {
    BS_CHECK(!lengths.defined(), "lstm: lengths for one sequence {}", x.shape());
    const auto with_batch = [](const Variable& v) { return v.defined() ? unsqueeze(v, 1) : v; };
    Output out = forward(unsqueeze(x, options_.batch_first ? 0 : 1),
                         {with_batch(state.h), with_batch(state.c)});
    return {squeeze(out.y, options_.batch_first ? 0 : 1), squeeze(out.h, 1), squeeze(out.c, 1),
            std::move(out.states)};
  }
  const int64_t entries = int64_t{options_.layers} * directions();
  const auto check_state = [&](const char* name, const Variable& s, int64_t width) {
    const Shape expected{entries, x.size(options_.batch_first ? 0 : 1), width};
    BS_CHECK(!s.defined() || s.shape() == expected, "lstm: state {} {} where {} is expected", name,
             s.shape(), expected);
  };
  check_state("h", state.h, outputs());
  check_state("c", state.c, options_.hidden);
  Variable y = options_.batch_first ? transpose(x, 0, 1) : x;
  Output out;
  for (int l = 0; l < options_.layers; l += paired(l) ? 2 : 1) {
    if (l > 0 && training()) y = dropout(y, options_.dropout, generator());
    const std::vector<LSTMStates> states = layer(y, l, state, lengths);
    y = directions() == 1 ? states.back().y : concat({states[0].y, states[1].y}, 2);
    out.states.insert(out.states.end(), states.begin(), states.end());
  }
  if (lengths.defined()) y = where(steps_within(lengths, y.data()), y, 0);
  out.y = options_.batch_first ? transpose(y, 0, 1) : y;
  out.h = stacked(out.states, &LSTMStates::h_n);
  out.c = stacked(out.states, &LSTMStates::c_n);
  return out;
}

LSTMCell::LSTMCell(const Options& options) : options_(options) {
  const auto& [input, hidden, bias, hard, forget_bias, dtype, device] = options_;
  BS_CHECK(is_extent(input) && is_extent(hidden), "lstm_cell: {} cells of {} features", hidden,
           input);
  const auto make = [&](const char* name, Variable& member, const Shape& shape, bool wanted) {
    register_parameter(name, member,
                       wanted ? Tensor::empty(shape, options_.dtype, options_.device) : Tensor());
  };
  make("weight_ih", weights.ih, {4 * hidden, input}, true);
  make("weight_hh", weights.hh, {4 * hidden, hidden}, true);
  make("bias_ih", weights.bias_ih, {4 * hidden}, bias);
  make("bias_hh", weights.bias_hh, {4 * hidden}, bias);
  init_direction(weights, hidden, forget_bias);
}

LSTMState LSTMCell::forward(const Variable& x, const LSTMState& state) const {
  BS_CHECK((x.rank() == 1 || x.rank() == 2) && x.size(-1) == options_.input,
           "lstm_cell: x {} for {} input features", x.shape(), options_.input);
  const bool single = x.rank() == 1;
  const auto with_batch = [&](const Variable& v) {
    return single && v.defined() ? unsqueeze(v, 0) : v;
  };
  const LSTMDirectionVariables step{.weights = weights,
                                    .h0 = with_batch(state.h),
                                    .c0 = with_batch(state.c),
                                    .rule = {.hard = options_.hard}};
  const LSTMStates after = lstm(unsqueeze(with_batch(x), 0), {&step, 1})[0];
  if (!single) return {after.h_n, after.c_n};
  return {squeeze(after.h_n, 0), squeeze(after.c_n, 0)};
}

LSTMStream::LSTMStream(const LSTM& lstm) : lstm_(lstm) {
  BS_CHECK(!lstm.options().bidirectional,
           "lstm_stream: a bidirectional layer needs the end of a sequence before its start");
}

Tensor LSTMStream::forward(const Tensor& x) {
  const NoGrad no_grad;
  const LSTM::Output out = lstm_.forward(x, state_);
  state_ = out.state();
  return out.y.data();
}

}  // namespace bs::nn
