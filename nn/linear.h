#pragma once
/** @file The fully connected layer. */
#include <bs/nn/module.h>

namespace bs::nn {

struct LinearOptions {
  int64_t in = 0;
  int64_t out = 0;
  bool bias = true;
  DType dtype = f32;
  Device device = Device::cpu();
};

/** @brief y = x W^T + b for x [..., in]; see kernels/linear.h.
 *
 *  Starts with values in +-1 / sqrt(in), weight and bias. */
class Linear : public Module {
 public:
  using Options = LinearOptions;
  /** @throws Error unless both extents are positive. */
  explicit Linear(const Options& options);
  Variable forward(const Variable& x) const;

  Variable weight;  ///< [out, in]
  Variable bias;    ///< [out], or undefined
};

}  // namespace bs::nn
