#include <bs/autograd/block_float.h>
#include <bs/autograd/concat.h>
#include <bs/autograd/grad_check.h>
#include <bs/autograd/view.h>
#include <bs/kernels/copy.h>
#include <bs/nn/lstm.h>
#include <bs/nn/state_dict.h>
#include <bs/tests/support/devices.h>
#include <bs/tests/support/op_case.h>
#include <doctest/doctest.h>

#include <limits>

using namespace bs;
using namespace bs::test;

namespace {

Tensor values(const Shape& shape, uint64_t seed) {
  return random_reference(shape, seed).tensor(f64, test_device());
}

Variable joined(const LSTMStates& s) {
  const auto flat = [](const Variable& v) { return reshape(v, {-1}); };
  return concat({flat(s.y), flat(s.c), flat(s.h_n), flat(s.c_n)}, 0);
}

double sigmoid(double z) { return 1 / (1 + std::exp(-z)); }

/// One sequence of an LSTM of `hidden` cells by plain loops, where `f` rounds what a matrix is
/// multiplied with, `g` everything else, and `norm` normalises a vector that has a factor.
template <class F, class G, class Norm>
Reference sequence(const nn::LSTM& lstm, const Reference& x, F f, G g, Norm norm) {
  const auto parameter = [&](const Variable& v) { return Reference::of(v.data()); };
  const auto& w = lstm.weights[0];
  const Reference ih = f(parameter(w.ih)), hh = f(parameter(w.hh));
  const Reference bi = parameter(w.bias_ih), bh = parameter(w.bias_hh);
  const int64_t H = lstm.options().hidden, I = lstm.options().input;
  Reference h({H}), c({H}), y({x.shape[0], H});
  const auto product = [](const Reference& m, const Reference& v) {
    Reference out({m.shape[0]});
    for (int64_t i = 0; i < m.shape[0]; ++i)
      for (int64_t j = 0; j < m.shape[1]; ++j) out.at({i}) += m.at({i, j}) * v.at({j});
    return out;
  };
  for (int64_t t = 0; t < x.shape[0]; ++t) {
    Reference now({I});
    for (int64_t j = 0; j < I; ++j) now.at({j}) = x.at({t, j});
    const Reference in = norm(product(ih, f(now)), 0), back = norm(product(hh, f(h)), 1);
    Reference z[4] = {h, h, h, h};
    for (int64_t u = 0; u < H; ++u)
      for (int64_t q = 0; q < 4; ++q) {
        const int64_t row = q * H + u;
        const double sum = g(in.at({row}) + g(bi.at({row})) + g(bh.at({row})) + back.at({row}));
        z[q].at({u}) = g(q == 2 ? std::tanh(sum) : sigmoid(sum));
      }
    for (int64_t u = 0; u < H; ++u)
      c.at({u}) = g(z[1].at({u}) * c.at({u}) + z[0].at({u}) * z[2].at({u}));
    const Reference shown = norm(c, 2);
    for (int64_t u = 0; u < H; ++u) {
      h.at({u}) = g(z[3].at({u}) * g(std::tanh(shown.at({u}))));
      y.at({t, u}) = h.at({u});
    }
  }
  return y;
}

}  // namespace

TEST_CASE("composed_lstm without its options is the fused layer") {
  Generator generator;
  for (const bool reverse : {false, true})
    for (const bool hard : {false, true})
      for (const int64_t projection : {0, 2}) {
        const int64_t width = projection > 0 ? projection : 5;
        const std::vector<Shape> shapes = {{6, 3, 4}, {20, 4},    {20, width}, {20},
                                           {20},      {3, width}, {3, 5},      {width, 5}};
        std::vector<Variable> v;
        for (const Shape& shape : shapes) v.emplace_back(values(shape, 1 + v.size()), true);
        LSTMDirectionVariables d{
            .weights = {.ih = v[1], .hh = v[2], .bias_ih = v[3], .bias_hh = v[4]},
            .h0 = v[5],
            .c0 = v[6],
            .rule = {.hard = hard, .zoneout_hidden = 0.2, .zoneout_cell = 0.1, .expected = true},
            .reverse = reverse};
        if (projection > 0) d.weights.hr = v[7];
        const Tensor lengths = Tensor::from<int64_t>({6, 2, 5});
        const Variable fused = joined(lstm(v[0], {&d, 1}, lengths)[0]);
        const Variable composed = joined(nn::composed_lstm(v[0], d, lengths, {}, false, generator));
        check_close("states", Reference::of(composed.data()), Reference::of(fused.data()), 1e-13);
        const Tensor dy = values(fused.shape(), 20);
        fused.backward(dy);
        std::vector<Reference> expected;
        for (size_t i = 0; i < (projection > 0 ? 8 : 7); ++i) {
          expected.push_back(Reference::of(v[i].grad()));
          v[i].zero_grad();
        }
        composed.backward(dy);
        for (size_t i = 0; i < expected.size(); ++i)
          check_close("gradient", Reference::of(v[i].grad()), expected[i], 1e-12);
      }
}

TEST_CASE("nn::LSTM with layer norm") {
  nn::LSTM lstm({.input = 3,
                 .hidden = 6,
                 .zoneout_cell = 0.3,
                 .layer_norm = true,
                 .dtype = f64,
                 .device = test_device()});
  std::vector<std::string> names;
  for (const auto& [name, p] : lstm.named_parameters()) names.push_back(name);
  CHECK(names == std::vector<std::string>{"weight_ih_l0", "weight_hh_l0", "bias_ih_l0",
                                          "bias_hh_l0", "norm_ih_l0", "norm_hh_l0", "norm_c_l0",
                                          "norm_c_bias_l0"});
  uint64_t seed = 30;
  for (const Variable& p : lstm.parameters()) p.set_data(values(p.shape(), seed++));
  lstm.eval();
  std::vector<Variable> inputs = {Variable(values({4, 2, 3}, 1), true)};
  for (const Variable& p : lstm.parameters()) inputs.push_back(p);
  gradcheck([&](const std::vector<Variable>& in) { return lstm.forward(in[0]).y; }, inputs);

  nn::LSTM plain(
      {.input = 3, .hidden = 6, .layer_norm = true, .dtype = f64, .device = test_device()});
  for (const Variable& p : plain.parameters()) p.set_data(values(p.shape(), seed++));
  const Reference x = random_reference({5, 3}, 7);
  const nn::LSTMNorms& n = plain.norms[0];
  const Reference factors[] = {Reference::of(n.ih.data()), Reference::of(n.hh.data()),
                               Reference::of(n.c.data())};
  const Reference offset = Reference::of(n.c_bias.data());
  const auto norm = [&](Reference v, int which) {
    const auto count = static_cast<double>(v.values.size());
    double mean = 0, variance = 0;
    for (const double e : v.values) mean += e / count;
    for (const double e : v.values) variance += (e - mean) * (e - mean) / count;
    for (size_t i = 0; i < v.values.size(); ++i) {
      v[i] = (v[i] - mean) / std::sqrt(variance + 1e-5) * factors[which][i];
      if (which == 2) v[i] += offset[i];
    }
    return v;
  };
  const auto same = [](const auto& v) { return v; };
  check_close("layer norm", Reference::of(plain.forward(x.tensor(f64, test_device())).y.data()),
              sequence(plain, x, same, same, norm), 1e-12);
}

TEST_CASE("nn::LSTM in block floating point") {
  nn::LSTM lstm(
      {.input = 11, .hidden = 9, .quantize = true, .dtype = f64, .device = test_device()});
  const Reference x = random_reference({4, 11}, 7);
  const auto blocks = [](const Reference& v) {
    return Reference::of(block_float(v.tensor(f64, Device::cpu())));
  };
  const auto coarse = [](double v) { return static_cast<double>(static_cast<float>(bfloat16(v))); };
  const auto same = [](const Reference& v, int) { return v; };
  const Variable y = lstm.forward(x.tensor(f64, test_device())).y;
  // Products of 8-bit numbers add up exactly in double: everything agrees to the last bit.
  CHECK(Reference::of(y.data()).values == sequence(lstm, x, blocks, coarse, same).values);
  y.backward(values(y.shape(), 2));
  for (const Variable& p : lstm.parameters()) CHECK(largest(Reference::of(p.grad())) > 0);
  nn::LSTM half(
      {.input = 8, .hidden = 16, .quantize = true, .dtype = bf16, .device = test_device()});
  CHECK(half.forward(random_reference({3, 2, 8}, 1).tensor(bf16, test_device())).y.dtype() == bf16);
}

namespace {

/// Layers both ways whose weights of the input are products of so many factors; 0: dense ones.
nn::LSTMOptions two_layers(int input_factors) {
  return {.input = 6,
          .hidden = 4,
          .layers = 2,
          .bidirectional = true,
          .projection = 3,
          .input_factors = input_factors,
          .dtype = f64,
          .device = test_device()};
}

}  // namespace

TEST_CASE("nn::LSTM: names of the factors in place of the input's weights") {
  const nn::LSTM lstm(two_layers(2));
  std::vector<std::string> names;
  for (const auto& [name, p] : lstm.named_parameters()) names.push_back(name);
  CHECK(names == std::vector<std::string>{"weight_hh_l0",
                                          "bias_ih_l0",
                                          "bias_hh_l0",
                                          "weight_hr_l0",
                                          "weight_hh_l0_reverse",
                                          "bias_ih_l0_reverse",
                                          "bias_hh_l0_reverse",
                                          "weight_hr_l0_reverse",
                                          "weight_hh_l1",
                                          "bias_ih_l1",
                                          "bias_hh_l1",
                                          "weight_hr_l1",
                                          "weight_hh_l1_reverse",
                                          "bias_ih_l1_reverse",
                                          "bias_hh_l1_reverse",
                                          "weight_hr_l1_reverse",
                                          "input_l0.factors.0",
                                          "input_l0.factors.1",
                                          "input_l0_reverse.factors.0",
                                          "input_l0_reverse.factors.1",
                                          "input_l1.factors.0",
                                          "input_l1.factors.1",
                                          "input_l1_reverse.factors.0",
                                          "input_l1_reverse.factors.1"});
  CHECK(lstm.inputs[0]->extents() == nn::kronecker_factors(6, 16));
}

TEST_CASE("nn::LSTM: factors in place of the input's weights") {
  const nn::LSTM lstm(two_layers(2));
  // The dense layer with the same weights, fused.
  const nn::LSTM dense(two_layers(0));
  for (size_t i = 0; i < dense.weights.size(); ++i) {
    const auto& from = lstm.weights[i];
    const auto& to = dense.weights[i];
    CHECK_FALSE(from.ih.defined());
    to.ih.set_data(lstm.inputs[i]->weight());
    to.hh.set_data(from.hh.data());
    to.bias_ih.set_data(from.bias_ih.data());
    to.bias_hh.set_data(from.bias_hh.data());
    to.hr.set_data(from.hr.data());
  }
  const Tensor lengths = Tensor::from<int64_t>({5, 3});
  const Variable a(values({5, 2, 6}, 1), true), b(a.data(), true);
  const auto actual = lstm.forward(a, {}, lengths), expected = dense.forward(b, {}, lengths);
  check_close("y", Reference::of(actual.y.data()), Reference::of(expected.y.data()), 1e-13);
  check_close("c", Reference::of(actual.c.data()), Reference::of(expected.c.data()), 1e-13);
  const Tensor dy = values(actual.y.shape(), 2);
  actual.y.backward(dy);
  expected.y.backward(dy);
  check_close("dx", Reference::of(a.grad()), Reference::of(b.grad()), 1e-12);
  check_close("dW_hh", Reference::of(lstm.weights[0].hh.grad()),
              Reference::of(dense.weights[0].hh.grad()), 1e-12);

  nn::LSTM copy(two_layers(2));
  nn::load_state_dict(copy, nn::state_dict(lstm));
  CHECK(Reference::of(copy.forward(a, {}, lengths).y.data()).values ==
        Reference::of(actual.y.data()).values);
}

TEST_CASE("nn::LSTM: gradients of the input's factors") {
  for (const bool layer_norm : {false, true}) {
    const nn::LSTM lstm({.input = 4,
                         .hidden = 3,
                         .layers = 2,
                         .layer_norm = layer_norm,
                         .input_factors = 2,
                         .dtype = f64,
                         .device = test_device()});
    uint64_t seed = 40;
    for (const Variable& p : lstm.parameters()) p.set_data(values(p.shape(), seed++));
    std::vector<Variable> inputs = {Variable(values({3, 2, 4}, 1), true)};
    for (const Variable& p : lstm.parameters()) inputs.push_back(p);
    gradcheck([&](const std::vector<Variable>& in) { return lstm.forward(in[0]).y; }, inputs);
  }
}

TEST_CASE("nn::LSTM: the fused layer behind factors is the one of single operations") {
  for (const bool hard : {false, true})
    for (const int64_t projection : {0, 3}) {
      nn::LSTM lstm({.input = 6,
                     .hidden = 4,
                     .bidirectional = true,
                     .projection = projection,
                     .zoneout_hidden = 0.25,
                     .zoneout_cell = 0.5,
                     .hard = hard,
                     .input_factors = 2,
                     .dtype = f64,
                     .device = test_device()});
      lstm.eval();
      const Tensor lengths = Tensor::from<int64_t>({5, 3, 0});
      const Variable a(values({5, 3, 6}, 1), true), b(a.data(), true);
      const auto fused = lstm.forward(a, {}, lengths);
      std::vector<LSTMStates> single;
      for (size_t d = 0; d < 2; ++d) {
        const LSTMDirectionVariables part{
            .weights = lstm.weights[d],
            .rule = {.hard = hard, .zoneout_hidden = 0.25, .zoneout_cell = 0.5, .expected = true},
            .reverse = d == 1,
            .input = lstm.inputs[d]->forward(b)};
        single.push_back(nn::composed_lstm(b, part, lengths, {}, false, default_generator()));
      }
      const Variable y = joined(fused.states[0]), other = joined(single[0]);
      check_close("states", Reference::of(y.data()), Reference::of(other.data()), 1e-13);
      const Variable all = concat({y, joined(fused.states[1])}, 0);
      const Variable others = concat({other, joined(single[1])}, 0);
      const Tensor dy = values(all.shape(), 2);
      all.backward(dy);
      std::vector<Reference> grads = {Reference::of(a.grad())};
      for (const Variable& p : lstm.parameters()) {
        grads.push_back(Reference::of(p.grad()));
        p.zero_grad();
      }
      others.backward(dy);
      check_close("dx", Reference::of(b.grad()), grads[0], 1e-13);
      size_t i = 1;
      for (const Variable& p : lstm.parameters())
        check_close("a parameter's gradient", Reference::of(p.grad()), grads[i++], 1e-13);
    }
}

TEST_CASE("nn::LSTM: steps beyond a sequence's length reach no factor's gradient") {
  const nn::LSTM lstm({.input = 6, .hidden = 4, .input_factors = 2, .device = test_device()});
  const auto gradient = [&](double beyond) {
    Reference x = random_reference({4, 2, 6}, 1);
    for (int64_t t = 1; t < 4; ++t)
      for (int64_t i = 0; i < 6; ++i) x.at({t, 1, i}) = beyond;
    lstm.inputs[0]->factors[0].zero_grad();
    const Variable v(x.tensor(f32, test_device()), true);
    const Variable y = lstm.forward(v, {}, Tensor::from<int64_t>({4, 1})).y;
    y.backward(random_reference(y.shape(), 2).tensor(f32, test_device()));
    std::vector<double> all = Reference::of(lstm.inputs[0]->factors[0].grad()).values;
    for (const double g : Reference::of(v.grad()).values) all.push_back(g);
    return all;
  };
  CHECK(gradient(std::numeric_limits<double>::quiet_NaN()) == gradient(0));
}

TEST_CASE("nn::LSTM refuses factors that nothing can be made of") {
  CHECK_THROWS_WITH_AS(nn::LSTM({.input = 4, .hidden = 3, .input_factors = -1}),
                       "lstm: -1 factors of the input's weight", Error);
  CHECK_THROWS_WITH_AS(nn::LSTM({.input = 4, .hidden = 3, .quantize = true, .input_factors = 2}),
                       "lstm: 2 factors of the input's weight in block floating point", Error);
}

TEST_CASE("composed_lstm: zoneout draws while training") {
  nn::LSTM lstm({.input = 2,
                 .hidden = 64,
                 .zoneout_hidden = 1,
                 .zoneout_cell = 0.5,
                 .layer_norm = true,
                 .device = test_device()});
  const Tensor x = random_reference({3, 4, 2}, 1).tensor(f32, test_device());
  const auto out = lstm.forward(x);
  CHECK(largest(Reference::of(out.y.data())) == 0);
  const Reference c = Reference::of(select(out.states[0].c, 0, 0).data());
  double kept = 0;
  for (const double v : c.values) kept += v == 0;
  CHECK(std::abs(kept / 256 - 0.5) < 5 * 0.5 / 16);
}
