#pragma once
/** @file Convolutions as layers, with PyTorch's parameter names, shapes and initial values. */
#include <bs/autograd/conv1d.h>
#include <bs/autograd/conv2d.h>
#include <bs/lib/random.h>
#include <bs/nn/module.h>

#include <span>

namespace bs::nn {

struct Conv1dOptions {
  int64_t in = 0;               ///< channels
  int64_t out = 0;              ///< channels
  int64_t kernel = 1;           ///< length of the filter
  bs::Conv1dOptions walk = {};  ///< stride, padding, dilation, groups
  bool bias = true;
  DType dtype = f32;
  Device device = Device::cpu();
};

/** @brief conv1d of x [N, in, L]. Starts with values in +-1 / sqrt(fan-in), weight and bias. */
class Conv1d : public Module {
 public:
  using Options = nn::Conv1dOptions;
  /** @throws Error unless extents are positive and groups divide the channels. */
  explicit Conv1d(const Options& options);
  Variable forward(const Variable& x) const { return conv1d(x, weight, bias, walk_); }

  Variable weight;  ///< [out, in / groups, kernel]
  Variable bias;    ///< [out], or undefined

 private:
  bs::Conv1dOptions walk_;
};

struct Conv2dOptions {
  int64_t in = 0;   ///< channels
  int64_t out = 0;  ///< channels
  Extent2 kernel = {1, 1};
  bs::Conv2dOptions walk = {};  ///< stride, padding, dilation, groups
  bool bias = true;
  Activation activation = Activation::none;
  DType dtype = f32;
  Device device = Device::cpu();
};

/** @brief conv2d of x [N, in, H, W] with an activation. Channels-last images are the fast ones.
 *  @code
 *  nn::Conv2d conv({.in = 64, .out = 128, .kernel = {3, 3},
 *                   .walk = {.stride = {2, 2}, .padding = {1, 1, 1, 1}}});
 *  @endcode
 *  Starts with values in +-1 / sqrt(fan-in), weight and bias. */
class Conv2d : public Module {
 public:
  using Options = nn::Conv2dOptions;
  /** @throws Error unless extents are positive and groups divide the channels. */
  explicit Conv2d(const Options& options);
  /** @brief activation(conv + residual); the residual may be undefined. */
  Variable forward(const Variable& x, const Variable& residual = {}) const;
  /** @brief Makes the layer compute scale * conv(x) + shift, for each output channel. That is what
   *  a batch norm behind it does in use, with scale = weight / sqrt(var + eps) and shift = bias -
   *  mean scale. A layer without a bias gets one. @throws Error for other shapes than [out], and
   *  for a layer with an activation, which would come before the scale. */
  void fold(const Tensor& scale, const Tensor& shift);

  Variable weight;  ///< [out, in / groups, R, S]
  Variable bias;    ///< [out], or undefined

 private:
  bs::Conv2dOptions walk_;
  Activation activation_;
};

struct ConvTranspose2dOptions {
  int64_t in = 0;   ///< channels
  int64_t out = 0;  ///< channels
  Extent2 kernel = {1, 1};
  bs::Conv2dOptions walk = {};
  Extent2 output_padding = {0, 0};
  bool bias = true;
  DType dtype = f32;
  Device device = Device::cpu();
};

/** @brief conv_transpose2d of x [N, in, H, W]. Starts as PyTorch's: the fan-in is out / groups
 * times the filter's size. */
class ConvTranspose2d : public Module {
 public:
  using Options = nn::ConvTranspose2dOptions;
  explicit ConvTranspose2d(const Options& options);
  Variable forward(const Variable& x) const {
    return conv_transpose2d(x, weight, bias, walk_, output_padding_);
  }

  Variable weight;  ///< [in, out / groups, R, S]
  Variable bias;    ///< [out], or undefined

 private:
  bs::Conv2dOptions walk_;
  Extent2 output_padding_;
};

namespace init {
/** @brief FixUp (Zhang, Dauphin, Ma, 2019), for residual networks without normalisation. The first
 *  layers of a branch get He's values times branches^(-1 / (2 depth - 2)), its last one zeros.
 *  @param[in] branch weights of one branch in their order, `branches` such being in the network */
void fixup(std::span<const Variable> branch, int64_t branches,
           Generator& generator = default_generator());
}  // namespace init

}  // namespace bs::nn
