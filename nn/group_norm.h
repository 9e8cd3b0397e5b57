#pragma once
/** @file Group and instance norm as layers; see kernels/group_norm.h for the formulas. */
#include <bs/autograd/group_norm.h>
#include <bs/nn/module.h>

namespace bs::nn {

struct GroupNormOptions {
  int64_t groups = 0;
  int64_t channels = 0;
  double eps = 1e-5;
  bool affine = true;  ///< whether to learn a factor and an offset a channel
  DType dtype = f32;
  Device device = Device::cpu();
};

/** @brief Normalises groups of an image's channels; x [N, channels, ...]. */
class GroupNorm : public Module {
 public:
  using Options = nn::GroupNormOptions;
  /** @throws Error unless the groups divide the channels. */
  explicit GroupNorm(const Options& options);
  /** @brief norm(x) + residual, which may be undefined. */
  Variable forward(const Variable& x, const Variable& residual = {}) const {
    return apply(x, residual, false);
  }
  /** @brief max(norm(x) + residual, 0), in one pass. */
  Variable forward_relu(const Variable& x, const Variable& residual = {}) const {
    return apply(x, residual, true);
  }

  Variable weight;  ///< [channels], ones at first, or undefined
  Variable bias;    ///< [channels], zeros at first, or undefined

 private:
  Variable apply(const Variable& x, const Variable& residual, bool relu) const;
  int64_t groups_, channels_;
  double eps_;
};

struct InstanceNormOptions {
  int64_t channels = 0;
  double eps = 1e-5;
  bool affine = false;  ///< whether to learn a factor and an offset a channel
  DType dtype = f32;
  Device device = Device::cpu();
};

/** @brief Normalises each channel of each image, while training and in use alike, as PyTorch's
 *  InstanceNorm1d and 2d without running statistics. */
class InstanceNorm : public GroupNorm {
 public:
  using Options = InstanceNormOptions;
  explicit InstanceNorm(const Options& options);
};

}  // namespace bs::nn
