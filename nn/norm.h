#pragma once
/** @file Normalisation of the last axis; see kernels/norm.h for the formulas. */
#include <bs/autograd/norm.h>
#include <bs/nn/module.h>

namespace bs::nn {

struct LayerNormOptions {
  int64_t width = 0;
  double eps = 1e-5;
  bool weight = true;  ///< whether to learn a factor for each feature
  bool bias = true;    ///< whether to learn an offset for each feature
  DType dtype = f32;
  Device device = Device::cpu();
};

/** @brief Layer norm of x [..., width]. Starts with weight 1 and bias 0. */
class LayerNorm : public Module {
 public:
  using Options = LayerNormOptions;
  /** @throws Error unless the width is positive. */
  explicit LayerNorm(const Options& options);
  Variable forward(const Variable& x) const;
  /** @brief a + b and its norm, in one pass; b may be undefined for nothing. */
  SumAndNorm forward_sum(const Variable& a, const Variable& b) const;

  Variable weight;  ///< [width], or undefined
  Variable bias;    ///< [width], or undefined

 private:
  double eps_;
  int64_t width_;
};

struct RMSNormOptions {
  int64_t width = 0;
  double eps = 1e-6;
  bool weight = true;  ///< whether to learn a factor for each feature
  DType dtype = f32;
  Device device = Device::cpu();
};

/** @brief RMS norm of x [..., width]. Starts with weight 1. */
class RMSNorm : public Module {
 public:
  using Options = RMSNormOptions;
  /** @throws Error unless the width is positive. */
  explicit RMSNorm(const Options& options);
  Variable forward(const Variable& x) const;
  /** @brief a + b and its norm, in one pass; b may be undefined for nothing. */
  SumAndNorm forward_sum(const Variable& a, const Variable& b) const;

  Variable weight;  ///< [width], or undefined

 private:
  double eps_;
  int64_t width_;
};

}  // namespace bs::nn
