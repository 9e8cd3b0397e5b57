#include <bs/kernels/copy.h>
#include <bs/kernels/fill.h>
#include <bs/nn/linear.h>
#include <bs/nn/norm.h>
#include <bs/nn/optim/adafactor.h>
#include <bs/nn/optim/adam.h>
#include <bs/nn/optim/adamw.h>
#include <bs/nn/optim/clip_grad_norm.h>
#include <bs/nn/optim/lamb.h>
#include <bs/nn/optim/lion.h>
#include <bs/nn/optim/muon.h>
#include <bs/nn/optim/rmsprop.h>
#include <bs/nn/optim/sgd.h>
#include <bs/tests/support/devices.h>
#include <bs/tests/support/reference.h>
#include <doctest/doctest.h>

#include <algorithm>
#include <bit>
#include <memory>

using namespace bs;
using namespace bs::test;

namespace {

/// A matrix that decays, and vectors that do not.
struct Model : nn::Module {
  Variable matrix, bias;
  nn::LayerNorm norm;
  explicit Model(DType dtype = f64) : norm({.width = 2, .dtype = dtype, .device = test_device()}) {
    const auto random = [&](const Shape& shape) {
      return random_reference(shape, 1).tensor(dtype, test_device());
    };
    matrix = register_parameter("matrix", random({2, 3}));
    bias = register_parameter("bias", random({2}));
    register_module("norm", norm);
  }
};

void set_gradients(const nn::Module& module, uint64_t seed) {
  for (const auto& [name, p] : module.named_parameters())
    p.set_grad(random_reference(p.shape(), seed += 1).tensor(p.dtype(), test_device()));
}

/// One parameter stepped in double.
struct Adam {
  std::vector<double> w, m, v;
  explicit Adam(const Variable& p) : w(Reference::of(p.data()).values), m(w.size()), v(w.size()) {}
  void step(int t, const std::vector<double>& g, double rate, double decay) {
    const double beta1 = 0.8, beta2 = 0.9, eps = 1e-3;
    for (size_t i = 0; i < w.size(); ++i) {
      m[i] = beta1 * m[i] + (1 - beta1) * g[i];
      v[i] = beta2 * v[i] + (1 - beta2) * g[i] * g[i];
      w[i] -= rate * decay * w[i];
      w[i] -= rate * (m[i] / (1 - std::pow(beta1, t))) /
              (std::sqrt(v[i] / (1 - std::pow(beta2, t))) + eps);
    }
  }
};

constexpr AdamWOptions adam_options{
    .learning_rate = 1, .beta1 = 0.8, .beta2 = 0.9, .eps = 1e-3, .weight_decay = 0.5};

void check_close(const Tensor& actual, const std::vector<double>& expected, double tolerance) {
  const Reference r = Reference::of(actual);
  REQUIRE(r.values.size() == expected.size());
  for (size_t i = 0; i < expected.size(); ++i) CHECK(std::abs(r[i] - expected[i]) <= tolerance);
}

}  // namespace

TEST_CASE("optim::AdamW: steps as the formula says; only matrices decay") {
  Model model;
  optim::AdamW optimizer(optim::decay_groups(model, adam_options));
  std::vector<Adam> expected;
  for (const Variable& p : model.parameters()) expected.emplace_back(p);
  for (int t = 1; t <= 5; ++t) {
    const double rate = 0.1 / t;
    set_gradients(model, static_cast<uint64_t>(10 * t));
    optimizer.set_learning_rate(rate);
    optimizer.step();
    size_t i = 0;
    for (const Variable& p : model.parameters()) {
      expected[i].step(t, Reference::of(p.grad()).values, rate, p.rank() >= 2 ? 0.5 : 0);
      check_close(p.data(), expected[i].w, 1e-14);
      ++i;
    }
  }
  CHECK(optimizer.steps() == 5);
  optimizer.zero_grad();
  for (const Variable& p : model.parameters()) CHECK(!p.grad().defined());
}

TEST_CASE("optim::AdamW: one group decays all, and what has no gradient stays") {
  Model model;
  optim::AdamW optimizer(model, adam_options);
  const Reference before = Reference::of(model.matrix.data());
  Adam bias(model.norm.weight);
  model.norm.weight.set_grad(ones({2}, f64, test_device()));
  optimizer.step();
  bias.step(1, {1, 1}, 1, 0.5);
  check_close(model.norm.weight.data(), bias.w, 1e-14);
  CHECK(Reference::of(model.matrix.data()).values == before.values);
}

TEST_CASE("optim::AdamW: 16-bit parameters are stepped in f32") {
  Model model(bf16);
  for (const Variable& p : model.parameters()) fill(p.data(), 1);
  optim::AdamW optimizer(model, {.learning_rate = 1e-4, .weight_decay = 0});
  // A step of 1e-4 is far below half the distance of 1 to its neighbours in bf16; forty are not.
  for (int t = 0; t < 40; ++t) {
    for (const Variable& p : model.parameters()) p.set_grad(ones(p.shape(), bf16, test_device()));
    optimizer.step();
  }
  CHECK(Reference::of(model.matrix.data())[0] == 1 - 0x1p-8);
  for (const auto& [name, tensor] : optimizer.state()) {
    CHECK(tensor.dtype() == f32);
    if (name.ends_with("master")) CHECK(Reference::of(tensor)[0] == doctest::Approx(0.996));
  }
}

TEST_CASE("optim::Lamb: only matrices decay and adapt; its state has AdamW's names") {
  Model model;
  const LambOptions options{.learning_rate = 0.1, .weight_decay = 0.5};
  optim::Lamb optimizer(optim::decay_groups(model, options));
  const std::vector<double> matrix = Reference::of(model.matrix.data()).values;
  const std::vector<double> bias = Reference::of(model.bias.data()).values;
  set_gradients(model, 3);
  optimizer.step();
  // The first step of Adam is the sign of the gradient, but for eps.
  const Reference g = Reference::of(model.matrix.grad()), h = Reference::of(model.bias.grad());
  std::vector<double> u(matrix.size()), expected(bias.size());
  double w_squares = 0, u_squares = 0;
  for (size_t i = 0; i < matrix.size(); ++i) {
    u[i] = g[i] / (std::abs(g[i]) + 1e-6) + 0.5 * matrix[i];
    w_squares += matrix[i] * matrix[i];
    u_squares += u[i] * u[i];
  }
  for (size_t i = 0; i < matrix.size(); ++i)
    u[i] = matrix[i] - 0.1 * std::sqrt(w_squares / u_squares) * u[i];
  for (size_t i = 0; i < bias.size(); ++i)
    expected[i] = bias[i] - 0.1 * h[i] / (std::abs(h[i]) + 1e-6);
  check_close(model.matrix.data(), u, 1e-12);
  check_close(model.bias.data(), expected, 1e-12);
  CHECK(optimizer.state().front().name == "matrix.first_moment");
}

TEST_CASE("optim: names of the state") {
  const auto names = [](const optim::Optimizer& optimizer) {
    std::string all;
    for (const auto& [name, tensor] : optimizer.state()) all += name + " ";
    return all;
  };
  struct One : nn::Module {
    Variable w;
    explicit One(DType dtype) : w(register_parameter("w", zeros({2}, dtype, test_device()))) {}
  };
  CHECK(names(optim::AdamW(One(f32))) == "w.first_moment w.second_moment ");
  CHECK(names(optim::AdamW(One(f16))) == "w.first_moment w.second_moment w.master ");
  CHECK(names(optim::Adam(One(f32), {.amsgrad = true})) ==
        "w.first_moment w.second_moment w.max_second_moment ");
  CHECK(names(optim::RMSprop(One(f32))) == "w.square_average ");
  CHECK(names(optim::RMSprop(One(f16), {.momentum = 0.9, .centered = true})) ==
        "w.square_average w.momentum w.gradient_average w.master ");
  CHECK(names(optim::Lion(One(f32))) == "w.momentum ");
  CHECK(names(optim::Adafactor(One(f16))) == "w.variance w.master ");
  CHECK(names(optim::Sgd(One(f32))) == "");
  CHECK(names(optim::Sgd(One(f16), {.momentum = 0.9})) == "w.momentum w.master ");
}

TEST_CASE("optim::Sgd: momentum and decay as in PyTorch") {
  for (const bool nesterov : {false, true}) {
    Model model;
    const SgdOptions options{
        .learning_rate = 0.1, .momentum = 0.9, .weight_decay = 0.5, .nesterov = nesterov};
    optim::Sgd optimizer(optim::decay_groups(model, options));
    std::vector<std::vector<double>> w, b;
    for (const Variable& p : model.parameters()) {
      w.push_back(Reference::of(p.data()).values);
      b.emplace_back(w.back().size());
    }
    for (int t = 1; t <= 4; ++t) {
      set_gradients(model, static_cast<uint64_t>(10 * t));
      optimizer.step();
      size_t which = 0;
      for (const Variable& p : model.parameters()) {
        const Reference g = Reference::of(p.grad());
        for (size_t i = 0; i < g.values.size(); ++i) {
          const double d = g[i] + (p.rank() >= 2 ? 0.5 : 0) * w[which][i];
          b[which][i] = 0.9 * b[which][i] + d;
          w[which][i] -= 0.1 * (nesterov ? d + 0.9 * b[which][i] : b[which][i]);
        }
        check_close(p.data(), w[which++], 1e-14);
      }
    }
    CHECK(optimizer.steps() == 4);
  }
}

TEST_CASE("optim: clipping, as a pass of its own and within the step") {
  Model model, twin;
  optim::Sgd optimizer(model, {.learning_rate = 1}), twin_optimizer(twin, {.learning_rate = 1});
  const auto a = model.parameters(), b = twin.parameters();
  for (const double most : {0.5, 100.0}) {
    double norm = 0;
    for (size_t i = 0; i < a.size(); ++i) {
      b[i].set_data(clone(a[i].data()));
      const Reference g = random_reference(a[i].shape(), i + 1);
      for (double v : g.values) norm += v * v;
      a[i].set_grad(g.tensor(f64, test_device()));
      b[i].set_grad(g.tensor(f64, test_device()));
    }
    norm = std::sqrt(norm);
    const double factor = std::min(1.0, most / (norm + 1e-6));
    const std::vector<double> before = Reference::of(a[0].grad()).values;
    CHECK(optim::clip_grad_norm(a, most).item() == doctest::Approx(norm).epsilon(1e-14));
    const std::vector<double> after = Reference::of(a[0].grad()).values;
    for (size_t i = 0; i < before.size(); ++i)
      CHECK(std::abs(after[i] - before[i] * factor) < 1e-15);
    optimizer.step();
    twin_optimizer.step({.norm = optim::grad_norm(b), .max_norm = most});
    for (size_t i = 0; i < a.size(); ++i)
      check_close(b[i].data(), Reference::of(a[i].data()).values, 1e-15);
  }
  CHECK_THROWS_WITH_AS(optim::clip_grad_norm(a, 0), "clip_grad_norm: a largest norm of 0", Error);
}

TEST_CASE("optim: groups of a module by the optimiser they are for") {
  const nn::Linear model({.in = 3, .out = 2, .device = test_device()});
  CHECK(optim::AdamW::decay_groups(model, {.weight_decay = 0.5})[0].options.weight_decay == 0.5);
  CHECK(optim::Lamb::decay_groups(model, {.weight_decay = 0.5})[1].options.weight_decay == 0);
  CHECK(optim::Sgd::decay_groups(model, {.weight_decay = 0.5})[0].parameters.size() == 1);
}

TEST_CASE("optim: wrong options are refused when an optimiser is made") {
  const nn::Linear model({.in = 3, .out = 2, .device = test_device()});
  CHECK_THROWS_AS(optim::AdamW(model, {.learning_rate = -1e-3}), Error);
  CHECK_THROWS_WITH_AS(optim::AdamW(model, {.weight_decay = -1}),
                       "adamw: a rate of 0.001, an eps of 1e-08, a decay of -1: none may be "
                       "negative",
                       Error);
  CHECK_THROWS_WITH_AS(optim::AdamW(model, {.beta2 = 1}),
                       "adamw: betas 0.9 and 1 are not within [0, 1)", Error);
  CHECK_THROWS_WITH_AS(optim::Lamb(model, {.eps = -1}), doctest::Contains("lamb: a rate of"),
                       Error);
  CHECK_THROWS_WITH_AS(optim::Sgd(model, {.weight_decay = -1}), doctest::Contains("sgd: a rate of"),
                       Error);
  CHECK_THROWS_WITH_AS(optim::Sgd(model, {.nesterov = true}),
                       "sgd: nesterov needs a momentum, not 0", Error);
}

TEST_CASE("optim: wrong options of the newer optimisers are refused when one is made") {
  const nn::Linear model({.in = 3, .out = 2, .device = test_device()});
  CHECK_THROWS_WITH_AS(optim::Adam(model, {.beta1 = 1}),
                       "adam: betas 1 and 0.999 are not within [0, 1)", Error);
  CHECK_THROWS_AS(optim::RMSprop(model, {.alpha = -1}), Error);
  CHECK_THROWS_AS(optim::Lion(model, {.learning_rate = std::nan("")}), Error);
  CHECK_THROWS_AS(optim::Adafactor(model, {.d = 0}), Error);
  CHECK_THROWS_AS(optim::Muon(model, {.momentum = 1}), Error);
  CHECK_THROWS_AS(optim::Muon(model, {}, {.beta1 = 1}), Error);
}

TEST_CASE("optim::Muon: matrices by Muon, the rest by AdamW, each with its rate") {
  Model model, twin;
  optim::Muon optimizer(model, {.learning_rate = 0.1, .products = f32},
                        {.learning_rate = 0.01, .weight_decay = 0.5});
  optim::AdamW adam(twin, {.learning_rate = 0.01, .weight_decay = 0.5});
  std::string names;
  for (const auto& [name, tensor] : optimizer.state()) names += name + " ";
  CHECK(names ==
        "matrix.momentum bias.first_moment bias.second_moment norm.weight.first_moment "
        "norm.weight.second_moment norm.bias.first_moment norm.bias.second_moment ");
  const std::vector<double> before = Reference::of(model.matrix.data()).values;
  for (const uint64_t seed : {3, 4}) {
    set_gradients(model, seed);
    set_gradients(twin, seed);
    optimizer.scale_learning_rates(0.5);
    adam.scale_learning_rates(0.5);
    optimizer.step();
    adam.step();
  }
  CHECK(same_bits(model.bias.data(), twin.bias.data()));
  CHECK(same_bits(model.norm.weight.data(), twin.norm.weight.data()));
  CHECK(Reference::of(model.matrix.data()).values != before);
  CHECK_THROWS_WITH_AS(optim::Muon({optim::MuonGroup{{{"bias", model.bias}}, {}}}),
                       "muon: bias [2] is no matrix", Error);
  model.matrix.set_requires_grad(false);
  CHECK(optim::Muon(model).state().size() == 6);
}

TEST_CASE("optim: a run that goes on from saved state is the run that never stopped") {
  const auto check = [](auto make) {
    Model whole(bf16), first(bf16), second(bf16);
    const auto a = make(whole), b = make(first), c = make(second);
    for (uint64_t step = 1; step <= 4; ++step) {
      set_gradients(whole, step);
      a->step();
      Model& model = step <= 2 ? first : second;
      if (step == 3) {
        const auto from = b->state(), to = c->state();
        REQUIRE(from.size() == to.size());
        for (size_t i = 0; i < from.size(); ++i) copy(from[i].tensor, to[i].tensor);
        for (size_t i = 0; i < first.parameters().size(); ++i)
          copy(first.parameters()[i].data(), second.parameters()[i].data());
        c->set_steps(b->steps());
      }
      set_gradients(model, step);
      (step <= 2 ? b : c)->step();
    }
    for (size_t i = 0; i < whole.parameters().size(); ++i)
      CHECK(same_bits(whole.parameters()[i].data(), second.parameters()[i].data()));
  };
  check([](Model& m) { return std::make_unique<optim::Adam>(m, AdamOptions{.amsgrad = true}); });
  check([](Model& m) {
    return std::make_unique<optim::RMSprop>(m, RMSpropOptions{.momentum = 0.5, .centered = true});
  });
  check([](Model& m) { return std::make_unique<optim::Lion>(m); });
  check([](Model& m) { return std::make_unique<optim::Adafactor>(m); });
  check([](Model& m) { return std::make_unique<optim::Muon>(m); });
}

TEST_CASE("optim: frozen parameters are passed over") {
  Model model;
  model.matrix.set_requires_grad(false);
  const std::vector<double> before = Reference::of(model.matrix.data()).values;
  optim::AdamW adam(optim::decay_groups(model, adam_options));
  optim::Sgd sgd(model, {.momentum = 0.9});
  CHECK(sgd.state().size() == 3);
  CHECK(adam.state().size() == 6);
  set_gradients(model, 3);
  adam.step();
  sgd.step();
  CHECK(Reference::of(model.matrix.data()).values == before);
  model.bias.set_requires_grad(false);
  for (const Variable& p : model.norm.parameters()) p.set_requires_grad(false);
  CHECK_THROWS_WITH_AS(optim::Sgd(model, {}), "optimizer: there are no parameters to change",
                       Error);
}

TEST_CASE("optim: after a step, done or refused, values and gradients have one owner again") {
  const auto owners = [](const Model& model) {
    int64_t most = 0;
    for (const auto& [name, p] : model.named_parameters())
      most = std::max({most, p.data().use_count(), p.grad().use_count()});
    return most;
  };
  Model model(f32);
  optim::AdamW optimizer(model);
  optim::Muon other(model);
  set_gradients(model, 1);
  REQUIRE(owners(model) == 1);
  optimizer.step();
  CHECK(owners(model) == 1);
  other.step();
  CHECK(owners(model) == 1);
  const Tensor norm = full({2}, 1.0, f64, test_device());
  CHECK_THROWS_AS(optimizer.step({.norm = norm, .max_norm = 1}), Error);
  CHECK_THROWS_AS(other.step({.norm = norm, .max_norm = 1}), Error);
  CHECK(owners(model) == 1);
}

TEST_CASE("optim: errors") {
  const Variable w(zeros({2}, f32, test_device()), true);
  const auto make = [](std::vector<nn::NamedVariable> list) {
    optim::AdamW({optim::AdamWGroup{std::move(list), {}}});
  };
  CHECK_THROWS_WITH_AS(make({{"w", w}, {"w", w}}), "optimizer: two parameters are named w", Error);
  CHECK_THROWS_WITH_AS(make({{"w", w}, {"tied", w}}),
                       "optimizer: w and tied are one parameter, which would be stepped twice",
                       Error);
  CHECK_THROWS_AS(optim::Sgd({optim::SgdGroup{{{"a", w}}, {}}, optim::SgdGroup{{{"b", w}}, {}}}),
                  Error);
  CHECK_THROWS_WITH_AS(make({{"w", w.detach()}}), "optimizer: w requires no gradient", Error);
  CHECK_THROWS_WITH_AS(optim::Sgd({optim::SgdGroup{{{"w", w}}, {}}}).set_steps(-1),
                       "optimizer: -1 steps done", Error);
}
