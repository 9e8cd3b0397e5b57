#pragma once
/** @file Residual networks for images (He et al., 2015) with torchvision's names, so that its
 *  weights load: `conv1.weight`, `bn1.running_mean`, `layer1.0.conv2.weight`,
 *  `layer2.0.downsample.0.weight`, `fc.bias`. */
#include <bs/nn/batch_norm.h>
#include <bs/nn/conv2d.h>
#include <bs/nn/linear.h>

#include <memory>
#include <vector>

namespace bs::nn {

struct ResNetOptions {
  int depth = 50;        ///< layers: 18, 34, 50, 101 or 152
  int64_t channels = 3;  ///< of images
  int64_t classes = 1000;
  int64_t width = 64;  ///< channels of the first stage, before a bottleneck widens them
  DType dtype = f32;
  Device device = Device::cpu();
};

/** @brief Convolutions with norms, and ReLUs between them, to whose result the input is added
 *  before the last ReLU. Two of 3x3; or a bottleneck of 1x1, 3x3, which strides, and 1x1 to four
 *  times the channels. Where the extents change, a 1x1 convolution brings the input along. */
class ResNetBlock : public Module {
 public:
  ResNetBlock(int64_t in, int64_t width, int64_t stride, const ResNetOptions& options);
  Variable forward(const Variable& x) const;

  std::vector<std::unique_ptr<Conv2d>> convs;
  std::vector<std::unique_ptr<BatchNorm2d>> norms;
  std::unique_ptr<Conv2d> downsample;  ///< null where the input itself is added
  std::unique_ptr<BatchNorm2d> downsample_norm;
};

/** @brief A ResNet from images [N, channels, H, W] to logits [N, classes].
 *  @code
 *  nn::ResNet model({.depth = 18});
 *  nn::load_state_dict(model, load_safetensors("resnet18.safetensors").tensors);
 *  model.eval();
 *  @endcode
 *  Starts with He's values for convolutions, by the outputs that an input goes to, as
 * torchvision's.
 */
class ResNet : public Module {
 public:
  using Options = ResNetOptions;
  /** @throws Error for another depth. */
  explicit ResNet(const Options& options);
  Variable forward(const Variable& images) const;
  /** @brief Puts every norm into the convolution before it, for a model in use. */
  void fold_norms();

  Conv2d conv1;
  BatchNorm2d bn1;
  std::vector<std::unique_ptr<ResNetBlock>> blocks;  ///< of all four stages
  Linear fc;
};

}  // namespace bs::nn
