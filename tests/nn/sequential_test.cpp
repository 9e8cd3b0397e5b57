#include <bs/autograd/grad_check.h>
#include <bs/kernels/fill.h>
#include <bs/nn/activation.h>
#include <bs/nn/dropout.h>
#include <bs/nn/linear.h>
#include <bs/nn/module_list.h>
#include <bs/nn/sequential.h>
#include <bs/tests/support/devices.h>
#include <bs/tests/support/reference.h>
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <utility>

using namespace bs;
using namespace bs::test;

namespace {
using Values = std::vector<double>;
Values values(const Variable& x) { return Reference::of(x.data()).values; }
}  // namespace

TEST_CASE("nn::Sequential: applies layers in order and names them by number") {
  nn::Sequential model;
  const nn::Linear& first = model.add<nn::Linear>({.in = 2, .out = 3, .device = test_device()});
  model.add<nn::ReLU>();
  model.add<nn::GELU>({.form = Gelu::tanh});
  const nn::Linear& last =
      model.add<nn::Linear>({.in = 3, .out = 1, .bias = false, .device = test_device()});
  CHECK(model.size() == 4);
  std::vector<std::string> names;
  for (const auto& p : model.named_parameters()) names.push_back(p.name);
  CHECK(names == std::vector<std::string>{"0.weight", "0.bias", "3.weight"});
  const Variable x = random_reference({5, 2}, 1).tensor(f32, test_device());
  CHECK(values(model.forward(x)) == values(last.forward(gelu(relu(first.forward(x)), Gelu::tanh))));
  CHECK(nn::Sequential().forward(x).is_same(x));
}

TEST_CASE("nn::Dropout: acts in training only") {
  nn::Sequential model;
  Generator generator(3);
  model.add<nn::Dropout>({.p = 0.25, .generator = &generator});
  const Variable x = ones({4000}, f32, test_device());
  const Values dropped = values(model.forward(x));
  const auto zeros_among = std::count(dropped.begin(), dropped.end(), 0.0);
  CHECK(std::abs(static_cast<double>(zeros_among) - 1000) < 4 * std::sqrt(4000 * 0.25 * 0.75));
  for (double v : dropped) CHECK((v == 0 || v == doctest::Approx(4.0 / 3)));
  CHECK(values(model.forward(x)) != dropped);
  generator.manual_seed(3);
  CHECK(values(model.forward(x)) == dropped);
  model.eval();
  CHECK(model.forward(x).is_same(x));
  CHECK_THROWS_WITH_AS(nn::Dropout({.p = 1.5}), "dropout: probability 1.5 is not in [0, 1]", Error);
}

TEST_CASE("nn activations: as formulas in double, with gradients, within a Sequential") {
  const Reference x = random_reference({3, 4}, 5, -2, 2);
  nn::Sequential model;
  model.add<nn::LeakyReLU>({.slope = 0.2});
  model.add<nn::ELU>({.alpha = 1.5});
  model.add<nn::LogSoftmax>({.axis = 0});
  const auto inner = [](double v) {
    const double leaky = v > 0 ? v : 0.2 * v;
    return leaky > 0 ? leaky : 1.5 * std::expm1(leaky);
  };
  const Values y = values(model.forward(x.tensor(f64, test_device())));
  for (size_t column = 0; column < 4; ++column) {
    double sum = 0;
    for (size_t row = 0; row < 3; ++row) sum += std::exp(inner(x[row * 4 + column]));
    for (size_t row = 0; row < 3; ++row) {
      const size_t i = row * 4 + column;
      CHECK(y[i] == doctest::Approx(inner(x[i]) - std::log(sum)).epsilon(1e-12));
    }
  }
  gradcheck([&](const std::vector<Variable>& v) { return model.forward(v[0]); },
            {Variable(x.tensor(f64, test_device()), true)});
}

TEST_CASE("nn activations: the functions of their names") {
  const Variable x = random_reference({3, 4}, 2, -2, 2).tensor(f32, test_device());
  CHECK(values(nn::ReLU().forward(x)) == values(relu(x)));
  CHECK(values(nn::SiLU().forward(x)) == values(silu(x)));
  CHECK(values(nn::Tanh().forward(x)) == values(tanh(x)));
  CHECK(values(nn::Sigmoid().forward(x)) == values(sigmoid(x)));
  CHECK(values(nn::Softmax().forward(x)) == values(softmax(x)));
  CHECK(values(nn::Softmax({.axis = 0}).forward(x)) == values(softmax(x, 0)));
  CHECK(values(nn::LogSoftmax().forward(x)) == values(log_softmax(x)));
  CHECK(values(nn::LogSoftmax({.axis = 0}).forward(x)) == values(log_softmax(x, 0)));
  CHECK(values(nn::LeakyReLU().forward(x)) == values(leaky_relu(x)));
  CHECK(values(nn::LeakyReLU({.slope = 0.2}).forward(x)) == values(leaky_relu(x, 0.2)));
  CHECK(values(nn::ELU().forward(x)) == values(elu(x)));
  CHECK(values(nn::ELU({.alpha = 2}).forward(x)) == values(elu(x, 2)));
  CHECK(values(nn::GELU().forward(x)) == values(gelu(x)));
  CHECK(values(nn::GELU({.form = Gelu::tanh}).forward(x)) == values(gelu(x, Gelu::tanh)));
}

namespace {
/// Its member was not registered.
struct Forgetful : nn::Module {
  struct Options {};
  nn::Linear inner{{.in = 2, .out = 2}};
  Forgetful() = default;
  explicit Forgetful(const Options&) {}
  Variable forward(const Variable& x) const { return inner.forward(x); }
};
}  // namespace

TEST_CASE("nn::Sequential: a layer with a member that was not registered is refused") {
  CHECK_THROWS_WITH_AS(nn::Layer::make<Forgetful>(),
                       doctest::Contains("module: a member of type bs::nn::Linear in "), Error);
  nn::Sequential model;
  model.add<nn::Linear>({.in = 2, .out = 2});
  CHECK_THROWS_AS(model.add<Forgetful>({}), Error);
  CHECK_THROWS_AS(model.add<Forgetful>(), Error);
  CHECK(model.size() == 1);
  model.add<nn::Linear>({.in = 2, .out = 1});
  CHECK(model.parameters().size() == 4);
  CHECK(model.forward(ones({3, 2})).shape() == Shape{3, 1});
  nn::ModuleList<Forgetful> list;
  CHECK_THROWS_AS(list.emplace(), Error);
  CHECK(list.size() == 0);
  nn::ModuleDict<Forgetful> dict;
  CHECK_THROWS_AS(dict.emplace("a"), Error);
  CHECK(dict.size() == 0);
}

TEST_CASE("nn::Sequential: a layer whose name is taken is refused, and not applied") {
  struct Model : nn::Sequential {
    nn::Linear other{{.in = 1, .out = 1}};
    Model() { register_module("0", other); }
  };
  Model model;
  CHECK_THROWS_WITH_AS(model.add<nn::Tanh>(), "module: the name 0 is taken", Error);
  CHECK(model.size() == 0);
  const Variable x = ones({2});
  CHECK(model.forward(x).is_same(x));
}

TEST_CASE("nn::Sequential: one that was moved away is no identity") {
  nn::Sequential model;
  model.add<nn::Tanh>();
  const nn::Sequential taken = std::move(model);
  CHECK(taken.forward(ones({2})).defined());
  CHECK_THROWS_WITH_AS(model.forward(ones({2})), "sequential: the layer was moved away", Error);
}
