#include <bs/autograd/image.h>
#include <bs/autograd/pool2d.h>
#include <bs/autograd/view.h>
#include <bs/examples/image_classifier/model.h>
#include <bs/kernels/fill.h>

namespace bs::example {
namespace {

nn::Conv2dOptions convolution(int64_t in, int64_t out, int64_t kernel, int64_t stride,
                              const Options& o) {
  return {.in = in,
          .out = out,
          .kernel = {kernel, kernel},
          .walk = {.stride = {stride, stride},
                   .padding = {kernel / 2, kernel / 2, kernel / 2, kernel / 2}},
          .bias = false,
          .dtype = o.dtype,
          .device = o.device};
}

nn::BatchNormOptions norm(int64_t channels, const Options& o) {
  return {.channels = channels, .dtype = o.dtype, .device = o.device};
}

}  // namespace

Convolution::Convolution(int64_t in, int64_t out, int64_t stride, const Options& o) {
  const nn::Conv2dOptions options = convolution(in, out, 3, stride, o);
  if (!o.is_sparse()) {
    dense = std::make_unique<nn::Conv2d>(options);
    return;
  }
  const Tensor all = ones({out / o.block, in / o.block, 3, 3}, u8);
  sparse = std::make_unique<nn::BlockSparseConv2d>(
      nn::BlockSparseConv2dOptions{.layout = conv2d_layout(all, o.block),
                                   .kernel = {3, 3},
                                   .walk = options.walk,
                                   .bias = false,
                                   .dtype = o.dtype,
                                   .device = o.device});
}

BasicBlock::BasicBlock(int64_t in, int64_t out, int64_t stride, const Options& options)
    : conv1(in, out, stride, options),
      conv2(out, out, 1, options),
      bn1(norm(out, options)),
      bn2(norm(out, options)) {
  register_module("conv1", conv1.module());
  register_module("bn1", bn1);
  register_module("conv2", conv2.module());
  register_module("bn2", bn2);
  if (in == out && stride == 1) return;
  shortcut = std::make_unique<nn::Conv2d>(convolution(in, out, 1, stride, options));
  register_module("shortcut", *shortcut);
}

Variable BasicBlock::forward(const Variable& x) const {
  const Variable y = bn1.forward_relu(conv1.forward(x));
  return bn2.forward_relu(conv2.forward(y), shortcut ? shortcut->forward(x) : x);
}

ResNet::ResNet(int64_t classes, const Options& o)
    : conv1(convolution(1, o.width, 3, 1, o)),
      bn1(norm(o.width, o)),
      fc({.in = int64_t{4} * o.width * o.widen,
          .out = classes,
          .dtype = o.dtype,
          .device = o.device}) {
  register_module("conv1", conv1);
  register_module("bn1", bn1);
  int64_t channels = o.width;
  for (int stage = 0; stage < 3; ++stage)
    for (int i = 0; i < (o.depth - 2) / 6; ++i) {
      const int64_t out = int64_t{o.width} * o.widen << stage;
      const int64_t stride = stage > 0 && i == 0 ? 2 : 1;
      blocks.push_back(std::make_unique<BasicBlock>(channels, out, stride, o));
      block_names.push_back("layer" + std::to_string(stage + 1) + "." + std::to_string(i));
      register_module(block_names.back(), *blocks.back());
      channels = out;
    }
  register_module("fc", fc);
}

Variable ResNet::forward(const Variable& images) const {
  Variable x = bn1.forward_relu(conv1.forward(channels_last(images)));
  for (const auto& block : blocks) x = block->forward(x);
  x = adaptive_avg_pool2d(x, {1, 1});
  return fc.forward(reshape(x, {x.size(0), x.size(1)}));
}

}  // namespace bs::example
