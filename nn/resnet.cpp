#include <bs/nn/resnet.h>

#include <bs/autograd/image.h>
#include <bs/autograd/pool2d.h>
#include <bs/autograd/view.h>
#include <bs/nn/init.h>

#include <array>
#include <cmath>
#include <string>

namespace bs::nn {

namespace {

struct Stages {
  std::array<int, 4> blocks;
  bool bottleneck;

  int64_t widening() const { return bottleneck ? 4 : 1; }
};

Stages stages_of(int depth) {
  switch (depth) {
    case 18:
      return {{2, 2, 2, 2}, false};
    case 34:
      return {{3, 4, 6, 3}, false};
    case 50:
      return {{3, 4, 6, 3}, true};
    case 101:
      return {{3, 4, 23, 3}, true};
    case 152:
      return {{3, 8, 36, 3}, true};
    default:
      BS_THROW(Error, "resnet: {} layers; there are 18, 34, 50, 101 and 152", depth);
  }
}

Conv2dOptions convolution(int64_t in, int64_t out, int64_t kernel, int64_t stride,
                          const ResNetOptions& o) {
  const int64_t pad = kernel / 2;
  return {.in = in,
          .out = out,
          .kernel = {kernel, kernel},
          .walk = {.stride = {stride, stride}, .padding = {pad, pad, pad, pad}},
          .bias = false,
          .dtype = o.dtype,
          .device = o.device};
}

BatchNormOptions norm(int64_t channels, const ResNetOptions& o) {
  return {.channels = channels, .dtype = o.dtype, .device = o.device};
}

/// He's values, by the fan-out.
void start(const Conv2d& conv) {
  const double fan = static_cast<double>(init::fans(conv.weight.data()).out);
  init::normal(conv.weight.data(), 0, std::sqrt(2 / fan));
}

}  // namespace

ResNetBlock::ResNetBlock(int64_t in, int64_t width, int64_t stride, const ResNetOptions& options) {
  const Stages stages = stages_of(options.depth);
  BS_CHECK(is_extent(width), "resnet: a block of {} channels", width);
  const int64_t out = width * stages.widening();
  const auto add = [&](int64_t from, int64_t to, int64_t kernel, int64_t step) {
    const std::string number = std::to_string(convs.size() + 1);
    convs.push_back(std::make_unique<Conv2d>(convolution(from, to, kernel, step, options)));
    norms.push_back(std::make_unique<BatchNorm2d>(norm(to, options)));
    start(*convs.back());
    register_module("conv" + number, *convs.back());
    register_module("bn" + number, *norms.back());
  };
  if (stages.bottleneck) {
    add(in, width, 1, 1);
    add(width, width, 3, stride);
    add(width, out, 1, 1);
  } else {
    add(in, width, 3, stride);
    add(width, width, 3, 1);
  }
  if (in == out && stride == 1) return;
  downsample = std::make_unique<Conv2d>(convolution(in, out, 1, stride, options));
  downsample_norm = std::make_unique<BatchNorm2d>(norm(out, options));
  start(*downsample);
  register_module("downsample.0", *downsample);
  register_module("downsample.1", *downsample_norm);
}

Variable ResNetBlock::forward(const Variable& x) const {
  BS_CHECK(!convs.empty(), "resnet: the block was moved away");
  Variable y = x;
  for (size_t i = 0; i + 1 < convs.size(); ++i) y = norms[i]->forward_relu(convs[i]->forward(y));
  const Variable skip = downsample ? downsample_norm->forward(downsample->forward(x)) : x;
  return norms.back()->forward_relu(convs.back()->forward(y), skip);
}

ResNet::ResNet(const Options& o)
    : conv1(convolution(o.channels, o.width, 7, 2, o)),
      bn1(norm(o.width, o)),
      fc({.in = 8 * o.width * stages_of(o.depth).widening(),
          .out = o.classes,
          .dtype = o.dtype,
          .device = o.device}) {
  start(conv1);
  register_module("conv1", conv1);
  register_module("bn1", bn1);
  const Stages stages = stages_of(o.depth);
  int64_t channels = o.width;
  for (int stage = 0; stage < 4; ++stage)
    for (int i = 0; i < stages.blocks[static_cast<size_t>(stage)]; ++i) {
      const int64_t width = o.width << stage, stride = stage > 0 && i == 0 ? 2 : 1;
      blocks.push_back(std::make_unique<ResNetBlock>(channels, width, stride, o));
      register_module("layer" + std::to_string(stage + 1) + "." + std::to_string(i),
                      *blocks.back());
      channels = width * stages.widening();
    }
  register_module("fc", fc);
}

Variable ResNet::forward(const Variable& images) const {
  Variable x = bn1.forward_relu(conv1.forward(channels_last(images)));
  x = max_pool2d(x, {.kernel = {3, 3}, .stride = {2, 2}, .padding = {1, 1}});
  for (const auto& block : blocks) x = block->forward(x);
  x = adaptive_avg_pool2d(x, {1, 1});
  return fc.forward(reshape(x, {x.size(0), x.size(1)}));
}

void ResNet::fold_norms() {
  bn1.fold_into(conv1);
  for (const auto& block : blocks) {
    for (size_t i = 0; i < block->convs.size(); ++i) block->norms[i]->fold_into(*block->convs[i]);
    if (block->downsample) block->downsample_norm->fold_into(*block->downsample);
  }
}

}  // namespace bs::nn
