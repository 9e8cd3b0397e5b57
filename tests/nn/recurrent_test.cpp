#include <bs/autograd/concat.h>
#include <bs/autograd/view.h>
#include <bs/kernels/fill.h>
#include <bs/kernels/random.h>
#include <bs/nn/gru.h>
#include <bs/nn/rnn.h>
#include <bs/nn/state_dict.h>
#include <bs/tests/support/devices.h>
#include <bs/tests/support/op_case.h>
#include <doctest/doctest.h>

using namespace bs;
using namespace bs::test;

namespace {

Variable values(const Shape& shape, uint64_t seed) {
  return Variable(random_reference(shape, seed).tensor(f64, test_device()));
}

std::string names(const nn::Module& module) {
  std::string all;
  for (const auto& [name, p] : module.named_parameters()) all += name + to_string(p.shape()) + " ";
  return all;
}

}  // namespace

TEST_CASE("nn::GRU and nn::RNN: shapes") {
  const Tensor lengths = Tensor::from<int64_t>({100, 3, 0, 50, 1, 99, 7, 8}, {8});
  nn::GRU gru({.input = 80, .hidden = 64, .layers = 2, .bidirectional = true});
  const Variable x = randn({100, 8, 80});  // steps, batch, features
  const auto out = gru.forward(x);         // out.y [100, 8, 128], out.h [4, 8, 64]
  const nn::RNN rnn({.input = 80, .hidden = 64, .nonlinearity = Nonlinearity::relu});
  const auto next = rnn.forward(x, {}, lengths);  // lengths [8] i64: steps of each sequence
  CHECK(out.y.shape() == Shape{100, 8, 128});
  CHECK(out.h.shape() == Shape{4, 8, 64});
  CHECK(next.y.shape() == Shape{100, 8, 64});
  CHECK(next.h.shape() == Shape{1, 8, 64});
}

TEST_CASE("nn::GRU: parameters have PyTorch's names and shapes, and initial values in its range") {
  const nn::GRU gru(
      {.input = 3, .hidden = 16, .layers = 2, .bidirectional = true, .device = test_device()});
  CHECK(names(gru) ==
        "weight_ih_l0[48, 3] weight_hh_l0[48, 16] bias_ih_l0[48] bias_hh_l0[48] "
        "weight_ih_l0_reverse[48, 3] weight_hh_l0_reverse[48, 16] bias_ih_l0_reverse[48] "
        "bias_hh_l0_reverse[48] weight_ih_l1[48, 32] weight_hh_l1[48, 16] bias_ih_l1[48] "
        "bias_hh_l1[48] weight_ih_l1_reverse[48, 32] weight_hh_l1_reverse[48, 16] "
        "bias_ih_l1_reverse[48] bias_hh_l1_reverse[48] ");
  for (const Variable& p : gru.parameters()) {
    const double most = largest(Reference::of(p.data()));
    CHECK((most <= 0.25 && most > 0.1));
  }
  CHECK(names(nn::RNN({.input = 3, .hidden = 4, .bias = false, .device = test_device()})) ==
        "weight_ih_l0[4, 3] weight_hh_l0[4, 4] ");
  CHECK(names(nn::GRUCell({.input = 3, .hidden = 4, .device = test_device()})) ==
        "weight_ih[12, 3] weight_hh[12, 4] bias_ih[12] bias_hh[12] ");
  CHECK(names(nn::RNNCell({.input = 3, .hidden = 4, .bias = false, .device = test_device()})) ==
        "weight_ih[4, 3] weight_hh[4, 4] ");
}

TEST_CASE("nn::GRU and nn::RNN: a layer is its cell, step by step") {
  const auto check = [](const nn::Recurrent& layer, const nn::RecurrentCell& cell) {
    for (size_t i = 0; i < 4; ++i) cell.parameters()[i].set_data(layer.parameters()[i].data());
    const Variable x = values({5, 2, 3}, 1), h0 = values({1, 2, 4}, 2);
    const auto out = layer.forward(x, h0);
    Variable h = select(h0, 0, 0);
    std::vector<Variable> all;
    for (int64_t t = 0; t < 5; ++t) all.push_back(h = cell.forward(select(x, 0, t), h));
    check_close("y", Reference::of(out.y.data()), Reference::of(stack(all, 0).data()), 1e-14);
    check_close("h", Reference::of(out.h.data()), Reference::of(unsqueeze(h, 0).data()), 1e-14);
    // One sequence, or one row, is a batch of one without its axis.
    const auto one = layer.forward(select(x, 1, 1), select(h0, 1, 1));
    check_close("one", Reference::of(one.y.data()), Reference::of(select(out.y, 1, 1).data()),
                1e-14);
    CHECK(one.h.shape() == Shape{1, 4});
    CHECK(cell.forward(select(select(x, 0, 0), 0, 0)).shape() == Shape{4});
  };
  check(nn::GRU({.input = 3, .hidden = 4, .dtype = f64, .device = test_device()}),
        nn::GRUCell({.input = 3, .hidden = 4, .dtype = f64, .device = test_device()}));
  for (const Nonlinearity f : {Nonlinearity::tanh, Nonlinearity::relu})
    check(nn::RNN(
              {.input = 3, .hidden = 4, .nonlinearity = f, .dtype = f64, .device = test_device()}),
          nn::RNNCell(
              {.input = 3, .hidden = 4, .nonlinearity = f, .dtype = f64, .device = test_device()}));
}

TEST_CASE("nn::GRU: a ragged batch is its sequences one by one") {
  const nn::GRU gru({.input = 3,
                     .hidden = 4,
                     .layers = 2,
                     .batch_first = true,
                     .bidirectional = true,
                     .dtype = f64,
                     .device = test_device()});
  const Variable x = values({3, 6, 3}, 1), h0 = values({4, 3, 4}, 2);
  const std::vector<int64_t> ends{2, 6, 4};
  const auto out = gru.forward(x, h0, Tensor::from<int64_t>(std::span<const int64_t>(ends), {3}));
  const Reference y = Reference::of(out.y.data());
  for (int64_t b = 0; b < 3; ++b) {
    const int64_t end = ends[static_cast<size_t>(b)];
    const auto alone = gru.forward(slice(slice(x, 0, b, b + 1), 1, 0, end), slice(h0, 1, b, b + 1));
    const Reference own = Reference::of(alone.y.data());
    for (int64_t t = 0; t < 6; ++t)
      for (int64_t u = 0; u < 8; ++u)
        CHECK(y.at({b, t, u}) == doctest::Approx(t < end ? own.at({0, t, u}) : 0).epsilon(1e-13));
    check_close("h", Reference::of(slice(out.h, 1, b, b + 1).data()), Reference::of(alone.h.data()),
                1e-13);
  }
}

TEST_CASE("nn::GRU: dropout lies between the layers, in training alone") {
  Generator generator(3);
  const nn::GRUOptions options{.input = 3,
                               .hidden = 4,
                               .layers = 2,
                               .dropout = 1,
                               .generator = &generator,
                               .dtype = f64,
                               .device = test_device()};
  nn::GRU gru(options);
  const Variable x = values({5, 2, 3}, 1);
  const auto dropped = gru.forward(x);
  // All inputs of the second layer are zero: its outputs do not depend on x.
  const auto other = gru.forward(values({5, 2, 3}, 2));
  CHECK(Reference::of(dropped.y.data()).values == Reference::of(other.y.data()).values);
  CHECK(Reference::of(dropped.h.data()).values != Reference::of(other.h.data()).values);
  gru.eval();
  CHECK(Reference::of(gru.forward(x).y.data()).values != Reference::of(dropped.y.data()).values);
}

TEST_CASE("nn::GRU: weights come and go as a state dict") {
  const nn::GRUOptions options{.input = 3, .hidden = 4, .bidirectional = true};
  const nn::GRU from(options);
  nn::GRU to(options);
  nn::load_state_dict(to, nn::state_dict(from));
  for (size_t i = 0; i < from.parameters().size(); ++i)
    CHECK(same_bits(from.parameters()[i].data(), to.parameters()[i].data()));
}

TEST_CASE("nn::GRU and nn::RNN refuse what does not fit") {
  CHECK_THROWS_WITH_AS(nn::GRU({.hidden = 4}), "gru: 1 layers from 0 features to 4 cells", Error);
  CHECK_THROWS_WITH_AS(nn::RNN({.input = 3, .hidden = 4, .dropout = 2}),
                       "rnn: probability 2 is not in [0, 1]", Error);
  CHECK_THROWS_WITH_AS(nn::GRUCell({.input = 3}), "gru_cell: 0 cells of 3 features", Error);
  const nn::GRU gru({.input = 3, .hidden = 4});
  CHECK_THROWS_WITH_AS(gru.forward(zeros({5, 2, 4})), "gru: x [5, 2, 4] for 3 input features",
                       Error);
  CHECK_THROWS_WITH_AS(gru.forward(zeros({5, 2, 3}), zeros({1, 3, 4})),
                       "gru: state h0 [1, 3, 4] where [1, 2, 4] is expected", Error);
  CHECK_THROWS_WITH_AS(gru.forward(zeros({5, 3}), {}, Tensor::from<int64_t>({5}, {1})),
                       "gru: lengths for one sequence [5, 3]", Error);
  const nn::RNNCell cell({.input = 3, .hidden = 4});
  CHECK_THROWS_WITH_AS(cell.forward(zeros({2, 4})), "rnn_cell: x [2, 4] for 3 input features",
                       Error);
}
