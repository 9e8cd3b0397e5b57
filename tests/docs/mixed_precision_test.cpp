// The code of docs/mixed_precision.md; see snippets_test.cpp.
#include <bs/nn.h>
#include <doctest/doctest.h>

using namespace bs;

TEST_CASE("mixed precision: weights in bf16") {
  manual_seed(1);
  const Device device = cuda_available() ? Device::cuda() : Device::cpu();
  nn::Sequential model;
  model.add<nn::Linear>({.in = 8, .out = 32, .dtype = bf16, .device = device});
  model.add<nn::GELU>();
  model.add<nn::Linear>({.in = 32, .out = 4, .dtype = bf16, .device = device});
  optim::AdamW optimizer(model, {.learning_rate = 1e-2});  // keeps f32 copies of the weights

  const Tensor x = randn({64, 8}, bf16, device);
  const Tensor targets = randint(0, 4, {64}, i64, device);
  const Variable loss = cross_entropy(model.forward(x), targets);  // the loss is f32
  loss.backward();
  optimizer.step();

  CHECK(loss.dtype() == f32);
}

TEST_CASE("mixed precision: losses scaled for f16") {
  manual_seed(1);
  nn::Linear model({.in = 8, .out = 4});
  model.to(f16);
  optim::Sgd optimizer(model, {.learning_rate = 0.1});
  const std::vector<Variable> parameters = model.parameters();
  const Tensor x = randn({64, 8}, f16), targets = randint(0, 4, {64});
  bool done = false;

  optim::GradScaler scaler;
  for (int step = 0; step < 10; ++step) {
    optimizer.zero_grad();
    scaler.scale(cross_entropy(model.forward(x), targets)).backward();
    done = scaler.step(optimizer, parameters, 1.0);  // false where a gradient was not finite
  }

  CHECK(done);
}
