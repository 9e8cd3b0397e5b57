// The code of docs/own_operation.md; see snippets_test.cpp.
#include <bs/nn.h>
#include <doctest/doctest.h>

using namespace bs;

namespace own {

/// max(x, 0)^2, forward and backward as functions of tensors.
Tensor squared_relu(const Tensor& x) {
  const Tensor positive = relu(x);
  return positive * positive;
}
Tensor squared_relu_backward(const Tensor& x, const Tensor& dy) { return dy * (relu(x) * 2); }

/// The same with a gradient: the lambda keeps x for backward.
Variable squared_relu(const Variable& x) {
  return tape().record("squared_relu", {x}, squared_relu(x.data()),
                       [x = SavedTensor(x.data())](const Tensor& dy) {
                         return Grads{squared_relu_backward(x, dy)};
                       });
}

/// x^2 / 2, whose gradient has one too.
Variable half_square(const Variable& x) {
  return tape().record(
      "half_square", {x}, x.data() * x.data() * 0.5,
      Twice{[x = SavedTensor(x.data())](const Tensor& dy) { return Grads{dy * x}; },
            [](const Recorded& r) { return VariableGrads{r.dy() * r.input()}; }});
}

/// y_i = x_i + x_(i-1), written as a loop over memory.
Variable with_neighbour(const Variable& x) {
  BS_CHECK(x.dtype() == f32 && x.device().is_cpu() && x.rank() == 1,
           "with_neighbour: a vector of f32 on the CPU is needed, not {} {} on {}", x.dtype(),
           x.shape(), x.device());
  const auto run = [](const Tensor& from, int step) {
    const Tensor in = contiguous(from);
    Tensor out = Tensor::empty_like(in);
    const int64_t n = in.numel();
    for (int64_t i = 0; i < n; ++i) {
      const int64_t beside = i + step;
      const float other = beside >= 0 && beside < n ? in.data<float>()[beside] : 0.F;
      out.data<float>()[i] = in.data<float>()[i] + other;
    }
    return out;
  };
  return tape().record("with_neighbour", {x}, run(x.data(), -1),
                       [run](const Tensor& dy) { return Grads{run(dy, 1)}; });
}

struct Block : nn::Module {
  struct Options {
    int64_t width = 0;
    int64_t layers = 2;
    Device device = Device::cpu();
  };
  Variable scale;
  nn::ModuleList<nn::Linear> layers;

  explicit Block(const Options& options) {
    scale = register_parameter("scale", ones({options.width}, f32, options.device));
    register_module("layers", layers);
    for (int64_t i = 0; i < options.layers; ++i)
      layers.add({.in = options.width, .out = options.width, .device = options.device});
  }
  Variable forward(Variable x) const {
    for (size_t i = 0; i < layers.size(); ++i) x = x + squared_relu(layers[i].forward(x));
    return x * scale;
  }
};

}  // namespace own

TEST_CASE("own operation: its gradient is right") {
  const Variable x(randn({7}, f64), true);
  gradcheck([](const std::vector<Variable>& in) { return own::squared_relu(in[0]); }, {x});
}

TEST_CASE("own operation: a loop over memory") {
  const Variable x(Tensor::from<float>({1, 2, 4}), true);
  const Variable y = own::with_neighbour(x);
  CHECK(equal(y.data(), Tensor::from<float>({1, 3, 6})));
  sum(y * Tensor::from<float>({1, 10, 100})).backward();
  CHECK(equal(x.grad(), Tensor::from<float>({11, 110, 100})));
  CHECK_THROWS_AS(own::with_neighbour(zeros({2, 2})), Error);
}

TEST_CASE("own operation: a gradient with a gradient") {
  const Variable x(randn({7}, f64), true);
  gradcheck([](const std::vector<Variable>& in) { return own::half_square(in[0]); }, {x});
  const Variable slope = differentiable_grad(sum(own::half_square(x)), x);
  const Grads ones = grad(sum(slope), {x});
  CHECK(equal(slope.data(), x.data()));
  CHECK(equal(ones[0], full({7}, 1, f64)));
}

TEST_CASE("own module: in a model") {
  nn::Sequential model;
  model.add<own::Block>({.width = 8});
  model.add<nn::Linear>({.in = 8, .out = 2});
  CHECK(model.named_parameters()[0].name == "0.scale");
  CHECK(model.named_parameters()[1].name == "0.layers.0.weight");
  CHECK(model.forward(randn({3, 8})).shape() == Shape{3, 2});
}
