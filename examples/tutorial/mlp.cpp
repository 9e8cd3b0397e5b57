// Two spirals told apart by a small network: data, a model, a loop, an accuracy.
#include <bs/nn.h>

#include <cmath>
#include <cstdio>
#include <cstdlib>

using namespace bs;

namespace {

/// Points [n, 2] on two arms, and the arm of each [n].
std::vector<Tensor> spirals(int64_t n) {
  const Tensor arm = remainder(arange(n), 2);
  const Tensor radius = rand({n}) * 0.9 + 0.1;
  const Tensor angle = radius * 9.0 + cast(arm, f32) * 3.14159 + randn({n}) * 0.05;
  return {stack({radius * cos(angle), radius * sin(angle)}, 1), arm};
}

double accuracy(const nn::Sequential& model, const std::vector<Tensor>& points) {
  const NoGrad guard;  // nothing is recorded, so nothing is kept for a backward
  const Tensor guessed = argmax(model.forward(points[0]).data(), 1);
  return mean(cast(eq(guessed, points[1]), f32)).item();
}

}  // namespace

int main() {
  manual_seed(1);
  const Device device = cuda_available() ? Device::cuda() : Device::cpu();
  data::DataLoader loader(data::tensor_dataset(spirals(1000)),
                          {.batch = 100, .shuffle = true, .device = device});
  std::vector<Tensor> held_out = spirals(500);
  for (Tensor& t : held_out) t = to(t, device);

  nn::Sequential model;
  model.add<nn::Linear>({.in = 2, .out = 64, .device = device});
  model.add<nn::GELU>();
  model.add<nn::Linear>({.in = 64, .out = 64, .device = device});
  model.add<nn::GELU>();
  model.add<nn::Linear>({.in = 64, .out = 2, .device = device});
  std::puts(to_string(model).c_str());

  optim::AdamW optimizer(model, {.learning_rate = 5e-3});
  for (int epoch = 1; epoch <= 40; ++epoch) {
    double total = 0;
    for (int64_t b = 0; b < loader.batches(); ++b) {
      const std::vector<Tensor> batch = loader.next();
      optimizer.zero_grad();
      const Variable loss = cross_entropy(model.forward(batch[0]), batch[1]);
      loss.backward();
      optimizer.step();
      total += loss.data().item();
    }
    if (epoch % 10 == 0)
      std::printf("epoch %d: loss %.4f, held-out accuracy %.3f\n", epoch,
                  total / static_cast<double>(loader.batches()), accuracy(model, held_out));
  }
  return accuracy(model, held_out) > 0.95 ? EXIT_SUCCESS : EXIT_FAILURE;
}
