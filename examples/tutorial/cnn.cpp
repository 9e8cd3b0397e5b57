// Crosses, boxes and triangles told apart in noise: convolutions, batch norm, pooling, folding.
#include <bs/nn.h>

#include <cstdio>
#include <cstdlib>
#include <span>
#include <vector>

using namespace bs;

namespace {

constexpr int64_t side = 16, shapes = 3;

/// Whether a shape of radius 4 covers the pixel (y, x) from its centre.
bool covers(int64_t shape, int64_t y, int64_t x) {
  const int64_t h = std::abs(y), w = std::abs(x);
  if (h > 4 || w > 4) return false;
  switch (shape) {
    case 0:
      return h == w;  // a cross
    case 1:
      return h == 4 || w == 4;  // a box
    default:
      return y == 4 || 2 * w == y + 4 || 2 * w == y + 5;  // a triangle
  }
}

/// Images [n, 1, side, side] in noise, and which shape each shows.
std::vector<Tensor> pictures(int64_t n) {
  const Tensor places = cast(rand({n, 2}) * 7.0, i64);
  const Tensor labels = cast(remainder(arange(n), static_cast<double>(shapes)), i64);
  const Tensor images = randn({n, 1, side, side}) * 0.4;
  for (int64_t i = 0; i < n; ++i) {
    const auto top = static_cast<int64_t>(at(places, {i, 0}).item()) + 5;
    const auto left = static_cast<int64_t>(at(places, {i, 1}).item()) + 5;
    std::vector<float> ink;
    for (int64_t y = 0; y < side; ++y)
      for (int64_t x = 0; x < side; ++x)
        ink.push_back(covers(i % shapes, y - top, x - left) ? 1.0F : 0.0F);
    const Tensor one = images.select(0, i).select(0, 0);
    copy(one + Tensor::from(std::span<const float>(ink), {side, side}), one);
  }
  return {images, labels};
}

struct Net : nn::Module {
  nn::Conv2d conv1{{.in = 1, .out = 8, .kernel = {3, 3}, .walk = {.padding = {1, 1, 1, 1}}}};
  nn::BatchNorm2d bn1{{.channels = 8}};
  nn::Conv2d conv2{{.in = 8, .out = 16, .kernel = {3, 3}, .walk = {.padding = {1, 1, 1, 1}}}};
  nn::BatchNorm2d bn2{{.channels = 16}};
  nn::MaxPool2d pool{{.kernel = {2, 2}}};
  nn::AdaptiveAvgPool2d average;
  nn::Linear head{{.in = 16, .out = shapes}};

  Net() {
    register_module("conv1", conv1);
    register_module("bn1", bn1);
    register_module("conv2", conv2);
    register_module("bn2", bn2);
    register_module("head", head);
  }
  /// Logits [n, shapes]. Channels-last is the fast format, which every layer keeps.
  Variable forward(const Variable& images) const {
    Variable x = channels_last(images);
    x = pool.forward(bn1.forward_relu(conv1.forward(x)));
    x = pool.forward(bn2.forward_relu(conv2.forward(x)));
    return head.forward(nn::Flatten().forward(average.forward(x)));
  }
};

double accuracy(const Net& model, const std::vector<Tensor>& images) {
  const NoGrad guard;
  const Tensor guessed = argmax(model.forward(images[0]).data(), 1);
  return mean(cast(eq(guessed, images[1]), f32)).item();
}

}  // namespace

int main() {
  manual_seed(2);
  data::DataLoader loader(data::tensor_dataset(pictures(900)), {.batch = 50, .shuffle = true});
  const std::vector<Tensor> held_out = pictures(300);

  Net model;
  optim::AdamW optimizer(model, {.learning_rate = 1e-2});
  for (int epoch = 1; epoch <= 6; ++epoch) {
    for (int64_t b = 0; b < loader.batches(); ++b) {
      const std::vector<Tensor> batch = loader.next();
      optimizer.zero_grad();
      cross_entropy(model.forward(batch[0]), batch[1]).backward();
      optimizer.step();
    }
    model.eval();
    std::printf("epoch %d: held-out accuracy %.3f\n", epoch, accuracy(model, held_out));
    model.train();
  }

  // In use a batch norm is a factor and an offset, which the convolution before it can take over.
  model.eval();
  const double before = accuracy(model, held_out);
  model.bn1.fold_into(model.conv1);
  model.bn2.fold_into(model.conv2);
  const double folded = accuracy(model, held_out);
  std::printf("held-out accuracy %.3f, with folded norms %.3f\n", before, folded);
  return before > 0.9 && std::abs(before - folded) < 0.01 ? EXIT_SUCCESS : EXIT_FAILURE;
}
