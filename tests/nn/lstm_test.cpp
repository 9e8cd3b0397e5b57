#include <bs/autograd/binary.h>
#include <bs/autograd/concat.h>
#include <bs/autograd/dropout.h>
#include <bs/autograd/grad_check.h>
#include <bs/autograd/reduce.h>
#include <bs/autograd/view.h>
#include <bs/kernels/concat.h>
#include <bs/kernels/fill.h>
#include <bs/kernels/random.h>
#include <bs/lib/patterns.h>
#include <bs/nn/lstm.h>
#include <bs/tests/support/devices.h>
#include <bs/tests/support/op_case.h>
#include <doctest/doctest.h>

#include <algorithm>

using namespace bs;
using namespace bs::test;

namespace {

nn::LSTMOptions on_device(nn::LSTMOptions o) {
  o.device = test_device();
  return o;
}

Tensor values(const Shape& shape, uint64_t seed, DType dtype = f64) {
  return random_reference(shape, seed).tensor(dtype, test_device());
}

Reference of(const Variable& v) { return Reference::of(v.data()); }

/// Gives one model the parameters of another.
void same_weights(const nn::Module& from, const nn::Module& to) {
  const auto a = from.parameters(), b = to.parameters();
  REQUIRE(a.size() == b.size());
  for (size_t i = 0; i < a.size(); ++i) b[i].set_data(a[i].data());
}

}  // namespace

TEST_CASE("nn::LSTM has PyTorch's parameters") {
  const nn::LSTM lstm(
      {.input = 3, .hidden = 5, .layers = 2, .bidirectional = true, .projection = 2});
  std::vector<std::string> names;
  for (const auto& [name, parameter] : lstm.named_parameters()) {
    names.push_back(name);
    CHECK(largest(of(parameter)) <= 1 / std::sqrt(5.0));
  }
  const std::vector<std::string> expected = {
      "weight_ih_l0",         "weight_hh_l0",         "bias_ih_l0",
      "bias_hh_l0",           "weight_hr_l0",         "weight_ih_l0_reverse",
      "weight_hh_l0_reverse", "bias_ih_l0_reverse",   "bias_hh_l0_reverse",
      "weight_hr_l0_reverse", "weight_ih_l1",         "weight_hh_l1",
      "bias_ih_l1",           "bias_hh_l1",           "weight_hr_l1",
      "weight_ih_l1_reverse", "weight_hh_l1_reverse", "bias_ih_l1_reverse",
      "bias_hh_l1_reverse",   "weight_hr_l1_reverse"};
  CHECK(names == expected);
  const auto& w = lstm.weights;
  CHECK(w[0].ih.shape() == Shape{20, 3});
  CHECK(w[0].hh.shape() == Shape{20, 2});
  CHECK(w[0].hr.shape() == Shape{2, 5});
  CHECK(w[2].ih.shape() == Shape{20, 4});
  CHECK(w[3].bias_hh.shape() == Shape{20});
  CHECK(nn::LSTM({.input = 240, .hidden = 1024}).parameter_count() == 4 * 1024 * (240 + 1024 + 2));
}

TEST_CASE("nn::LSTM as its page shows it") {
  nn::LSTM lstm({.input = 80, .hidden = 64, .layers = 2, .bidirectional = true});
  const Variable x = randn({100, 8, 80});  // steps, batch, features
  const auto out = lstm.forward(x);        // out.y [100, 8, 128], out.h and out.c [4, 8, 64]
  const auto next = lstm.forward(x, out.state());
  CHECK(out.y.shape() == Shape{100, 8, 128});
  CHECK(out.h.shape() == Shape{4, 8, 64});
  CHECK(out.c.shape() == Shape{4, 8, 64});
  CHECK(of(next.y).values != of(out.y).values);
}

TEST_CASE("nn::LSTM: a forget bias stands in bias_ih alone") {
  const nn::LSTM lstm({.input = 2, .hidden = 3, .forget_bias = 1.5});
  const Reference ih = of(lstm.weights[0].bias_ih), hh = of(lstm.weights[0].bias_hh);
  for (size_t i = 0; i < 12; ++i) {
    const bool forget = i >= 3 && i < 6;
    CHECK((ih[i] == 1.5) == forget);
    CHECK((hh[i] == 0) == forget);
  }
}

TEST_CASE("nn::LSTM: gradients of all inputs and parameters, from all results") {
  nn::LSTM lstm(on_device({.input = 3,
                           .hidden = 4,
                           .layers = 2,
                           .bidirectional = true,
                           .projection = 2,
                           .zoneout_hidden = 0.1,
                           .zoneout_cell = 0.2,
                           .dtype = f64}));
  lstm.eval();
  std::vector<Variable> inputs = {Variable(values({5, 3, 3}, 1), true),
                                  Variable(values({4, 3, 2}, 2), true),
                                  Variable(values({4, 3, 4}, 3), true)};
  for (const Variable& p : lstm.parameters()) inputs.push_back(p);
  const Tensor lengths = Tensor::from<int64_t>({5, 2, 3});
  gradcheck(
      [&](const std::vector<Variable>& in) {
        const auto out = lstm.forward(in[0], {in[1], in[2]}, lengths);
        const auto flat = [](const Variable& v) { return reshape(v, {-1}); };
        return concat({flat(out.y), flat(out.h), flat(out.c), flat(out.all_h()), flat(out.all_c())},
                      0);
      },
      inputs, {.samples = 4});
}

TEST_CASE("nn::LSTM: sequences of different lengths are as if run one by one") {
  for (const bool batch_first : {false, true})
    for (const DType dtype : {f64, f32}) {
      nn::LSTM lstm(on_device({.input = 3,
                               .hidden = 17,
                               .layers = 2,
                               .batch_first = batch_first,
                               .bidirectional = true,
                               .dtype = dtype}));
      const std::vector<int64_t> lengths = {4, 7, 1, 0, 6};
      const Tensor x = values({7, 5, 3}, 1, dtype);
      const Tensor h0 = values({4, 5, 17}, 2, dtype), c0 = values({4, 5, 17}, 3, dtype);
      const auto out = lstm.forward(batch_first ? x.transpose(0, 1) : x, {h0, c0},
                                    Tensor::from<int64_t>(std::span<const int64_t>(lengths), {5}));
      const Variable y = batch_first ? transpose(out.y, 0, 1) : out.y;
      for (int64_t b = 0; b < 5; ++b) {
        const int64_t n = lengths[static_cast<size_t>(b)];
        const Tensor one = x.slice(0, 0, n).slice(1, b, b + 1);
        const auto alone = lstm.forward(batch_first ? one.transpose(0, 1) : one,
                                        {h0.slice(1, b, b + 1), c0.slice(1, b, b + 1)});
        const Variable alone_y = batch_first ? transpose(alone.y, 0, 1) : alone.y;
        const double close = 16 * epsilon(dtype);
        check_close("y", of(slice(slice(y, 0, 0, n), 1, b, b + 1)), of(alone_y), close);
        check_close("h", of(slice(out.h, 1, b, b + 1)), of(alone.h), close);
        check_close("c", of(slice(out.c, 1, b, b + 1)), of(alone.c), close);
        CHECK(largest(of(slice(slice(y, 0, n, 7), 1, b, b + 1))) == 0);
      }
    }
}

TEST_CASE("nn::LSTM: one sequence without a batch") {
  nn::LSTM lstm(on_device({.input = 3, .hidden = 4}));
  const Tensor x = values({5, 3}, 1, f32);
  const auto one = lstm.forward(x);
  const auto batch = lstm.forward(x.unsqueeze(1));
  CHECK(one.y.shape() == Shape{5, 4});
  CHECK(one.h.shape() == Shape{1, 4});
  CHECK(of(one.y).values == of(batch.y).values);
  CHECK(of(lstm.forward(x, {one.h, one.c}).y).values ==
        of(lstm.forward(x.unsqueeze(1), batch.state()).y).values);
}

TEST_CASE("nn::LSTMStream gives what the whole sequence gives") {
  for (const DType dtype : {f64, f32, f16, bf16}) {
    nn::LSTM lstm(
        on_device({.input = 6, .hidden = 32, .layers = 3, .projection = 20, .dtype = dtype}));
    lstm.eval();
    const Tensor x = values({23, 2, 6}, 1, dtype);
    const auto whole = lstm.forward(x);
    nn::LSTMStream stream(lstm);
    std::vector<Tensor> pieces;
    for (const auto& [begin, end] : {std::pair<int64_t, int64_t>{0, 1}, {1, 9}, {9, 10}, {10, 23}})
      pieces.push_back(stream.forward(x.slice(0, begin, end)));
    check_close("y", Reference::of(concat(std::span<const Tensor>(pieces), 0)), of(whole.y),
                16 * epsilon(dtype));
    check_close("h", of(stream.state().h), of(whole.h), 16 * epsilon(dtype));
    check_close("c", of(stream.state().c), of(whole.c), 16 * epsilon(dtype));
    stream.reset();
    CHECK(Reference::of(stream.forward(x.slice(0, 0, 1))).values ==
          Reference::of(pieces[0]).values);
  }
  const nn::LSTM both({.input = 1, .hidden = 1, .bidirectional = true});
  CHECK_THROWS_WITH_AS(
      nn::LSTMStream{both},
      "lstm_stream: a bidirectional layer needs the end of a sequence before its start", Error);
}

TEST_CASE("nn::LSTMCell steps as the layer does") {
  nn::LSTM lstm(on_device({.input = 3, .hidden = 5, .dtype = f64}));
  nn::LSTMCell cell({.input = 3, .hidden = 5, .dtype = f64, .device = test_device()});
  same_weights(lstm, cell);
  const Tensor x = values({4, 2, 3}, 1);
  const auto out = lstm.forward(x);
  nn::LSTMState state, single;
  for (int64_t t = 0; t < 4; ++t) {
    state = cell.forward(x.select(0, t), state);
    single = cell.forward(x.select(0, t).select(0, 1), single);
    check_close("h", of(state.h), of(select(out.y, 0, t)), 1e-14);
    check_close("h of one", of(single.h), of(select(select(out.y, 0, t), 0, 1)), 1e-14);
  }
  std::vector<std::string> names;
  for (const auto& [name, parameter] : cell.named_parameters()) names.push_back(name);
  CHECK(names == std::vector<std::string>{"weight_ih", "weight_hh", "bias_ih", "bias_hh"});
}

TEST_CASE("nn::LSTM: dropouts act in training alone") {
  Generator generator(3);
  nn::LSTM lstm(on_device({.input = 3,
                           .hidden = 8,
                           .layers = 2,
                           .dropout = 0.5,
                           .rw_dropout = 0.5,
                           .zoneout_hidden = 0.25,
                           .generator = &generator}));
  const Tensor x = values({6, 2, 3}, 1, f32);
  CHECK(of(lstm.forward(x).y).values != of(lstm.forward(x).y).values);
  const RandomState before = generator.state();
  const Reference first = of(lstm.forward(x).y);
  generator.set_state(before);
  CHECK(of(lstm.forward(x).y).values == first.values);
  lstm.eval();
  const RandomState evaluating = generator.state();
  CHECK(of(lstm.forward(x).y).values == of(lstm.forward(x).y).values);
  CHECK(generator.state() == evaluating);
}

TEST_CASE("nn::LSTM: dropout between layers is that of the whole of y") {
  Generator drawn(7), again(7);
  const nn::LSTM lstm(on_device(
      {.input = 3, .hidden = 4, .layers = 3, .dropout = 0.4, .generator = &drawn, .dtype = f64}));
  const Tensor x = values({9, 2, 3}, 1);
  Variable y = x;
  for (const LSTMWeightVariables& weights : lstm.weights) {
    if (&weights != &lstm.weights.front()) y = dropout(y, 0.4, again);
    const LSTMDirectionVariables layer{.weights = weights};
    y = bs::lstm(y, {&layer, 1})[0].y;
  }
  check_close("y", of(lstm.forward(x).y), of(y), 1e-14);
  CHECK(drawn.state() == again.state());
}

TEST_CASE("nn::LSTM: recurrent weights with all of their blocks dropped depend on x alone") {
  Generator generator(1);
  nn::LSTM lstm(
      on_device({.input = 3, .hidden = 4, .rw_dropout = 1, .generator = &generator, .dtype = f64}));
  const Tensor x = values({3, 2, 3}, 1);
  nn::LSTM without(on_device({.input = 3, .hidden = 4, .dtype = f64}));
  same_weights(lstm, without);
  without.weights[0].hh.set_data(zeros({16, 4}, f64, test_device()));
  CHECK(of(lstm.forward(x).y).values == of(without.forward(x).y).values);
}

TEST_CASE("nn::LSTM with block-sparse recurrent weights learns") {
  const LayoutPtr layout = patterns::random({.rows = 8, .cols = 2, .block = 16}, {.density = 0.5});
  nn::LSTM lstm(on_device({.input = 4, .hidden = 32, .layers = 2, .recurrent = layout}));
  CHECK(lstm.weights[0].hh.shape() == Shape{layout->nnz(), 16, 16});
  const auto out = lstm.forward(values({5, 3, 4}, 1, f32));
  sum(out.y * out.y).backward();
  for (const Variable& p : lstm.parameters()) CHECK(largest(Reference::of(p.grad())) > 0);
}

TEST_CASE("nn::LSTM refuses what makes no sense") {
  CHECK_THROWS_WITH_AS(nn::LSTM({.input = 0, .hidden = 4}),
                       "lstm: 1 layers from 0 features to 4 cells", Error);
  CHECK_THROWS_WITH_AS(nn::LSTM({.input = 1, .hidden = 4, .projection = 4}),
                       "lstm: a projection to 4 outputs of 4 cells; it must be smaller, or 0",
                       Error);
  CHECK_THROWS_WITH_AS(nn::LSTM({.input = 1, .hidden = 4, .dropout = 2}),
                       "lstm: probability 2 is not in [0, 1]", Error);
  const nn::LSTM lstm({.input = 3, .hidden = 4});
  const auto x = [](const Shape& shape) { return zeros(shape); };
  CHECK_THROWS_WITH_AS(lstm.forward(x({2, 2, 4})), "lstm: x [2, 2, 4] for 3 input features", Error);
  CHECK_THROWS_WITH_AS(lstm.forward(x({2, 2, 3}), {x({2, 2, 4}), {}}),
                       "lstm: state h [2, 2, 4] where [1, 2, 4] is expected", Error);
  CHECK_THROWS_WITH_AS(lstm.forward(x({2, 3}), {}, Tensor::from<int64_t>({2})),
                       "lstm: lengths for one sequence [2, 3]", Error);
}
