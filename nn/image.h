#pragma once
/** @file Layers of images without parameters: pooling, borders, other sizes. Their options are
 * those of the functions, and their results have the format of what they get. */
#include <bs/autograd/image.h>
#include <bs/autograd/interpolate.h>
#include <bs/autograd/pad.h>
#include <bs/autograd/pool2d.h>
#include <bs/autograd/view.h>
#include <bs/nn/module.h>

namespace bs::nn {

class MaxPool2d : public Module {
 public:
  using Options = MaxPool2dOptions;
  explicit MaxPool2d(const Options& options) : options_(options) {}
  Variable forward(const Variable& x) const { return max_pool2d(x, options_); }

 private:
  Options options_;
};

class AvgPool2d : public Module {
 public:
  using Options = AvgPool2dOptions;
  explicit AvgPool2d(const Options& options) : options_(options) {}
  Variable forward(const Variable& x) const { return avg_pool2d(x, options_); }

 private:
  Options options_;
};

struct AdaptiveAvgPool2dOptions {
  Extent2 size = {1, 1};
};
class AdaptiveAvgPool2d : public Module {
 public:
  using Options = AdaptiveAvgPool2dOptions;
  explicit AdaptiveAvgPool2d(const Options& options = {}) : options_(options) {}
  Variable forward(const Variable& x) const { return adaptive_avg_pool2d(x, options_.size); }

 private:
  Options options_;
};

class Pad : public Module {
 public:
  using Options = PadOptions;
  explicit Pad(const Options& options) : options_(options) {}
  Variable forward(const Variable& x) const { return pad(x, options_); }

 private:
  Options options_;
};

struct UpsampleOptions {
  Extent2 size = {0, 0};  ///< of the result; 0: scale times that of x
  double scale = 2;
  Interpolation mode = Interpolation::nearest;
  bool align_corners = false;
};
/** @brief Images in another size, floor(scale H) x floor(scale W) where none is given. */
class Upsample : public Module {
 public:
  using Options = UpsampleOptions;
  /** @throws Error for a scale that is not positive. */
  explicit Upsample(const Options& options);
  Variable forward(const Variable& x) const;

 private:
  Options options_;
};

struct FlattenOptions {
  int from = 1, to = -1;
};
/** @brief Joins the axes [from, to] into one, in PyTorch's order whatever the format: images of
 *  more than one pixel that are channels-last are copied. */
class Flatten : public Module {
 public:
  using Options = FlattenOptions;
  explicit Flatten(const Options& options = {}) : options_(options) {}
  Variable forward(const Variable& x) const;

 private:
  Options options_;
};

/** @brief Brings images to the fast format, as the first layer of a model. */
struct ChannelsLast : Module {
  Variable forward(const Variable& x) const { return channels_last(x); }
};

}  // namespace bs::nn
