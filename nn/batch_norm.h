#pragma once
/** @file Batch norm as a layer; see kernels/batch_norm.h for the formulas. */
#include <bs/autograd/batch_norm.h>
#include <bs/nn/conv2d.h>
#include <bs/nn/module.h>

#include <optional>

namespace bs::nn {

struct BatchNormOptions {
  int64_t channels = 0;
  double eps = 1e-5;
  std::optional<double> momentum = 0.1;  ///< weight of a new batch; nothing: a plain average
  bool affine = true;                    ///< whether to learn a factor and an offset a channel
  bool track_running_stats = true;       ///< else statistics are always those of the batch
  DType dtype = f32;                     ///< of weight and bias; statistics are f32, f64 for f64
  Device device = Device::cpu();
};

/** @brief Batch norm of x [N, channels, ...], with PyTorch's names, initial values and defaults.
 *
 *  While training it normalises by the batch, whose statistics join the running ones; in use by the
 *  running ones. A ReLU, and a residual added before it, take no pass of their own. */
class BatchNorm : public Module {
 public:
  using Options = nn::BatchNormOptions;
  /** @throws Error unless there are channels. */
  explicit BatchNorm(const Options& options);
  Variable forward(const Variable& x) const { return apply(x, {}, false); }
  /** @brief max(norm(x) + residual, 0), in one pass; the residual may be undefined. */
  Variable forward_relu(const Variable& x, const Variable& residual = {}) const {
    return apply(x, residual, true);
  }

  Variable weight;               ///< [channels], ones at first, or undefined
  Variable bias;                 ///< [channels], zeros at first, or undefined
  Variable running_mean;         ///< buffer [channels], zeros at first, or undefined
  Variable running_var;          ///< buffer [channels], ones at first, or undefined
  Variable num_batches_tracked;  ///< buffer, i64 [], or undefined

  /** @brief Puts what the layer does in use into the convolution before it, and makes itself the
   *  identity, but for a ReLU and a residual. The model's forward stays as it is.
   *  @throws Error where it keeps no running statistics, the channels differ, or the convolution
   * has an activation of its own. */
  void fold_into(Conv2d& conv);

 protected:
  /** @brief @throws Error unless x has one of these ranks. */
  BatchNorm(const Options& options, const char* name, int lowest_rank, int highest_rank);

 private:
  Variable apply(const Variable& x, const Variable& residual, bool relu) const;
  const char* name_;
  int lowest_rank_, highest_rank_;
  double eps_;
  std::optional<double> momentum_;
  int64_t channels_;
};

/** @brief Batch norm of x [N, channels] or [N, channels, L]. */
class BatchNorm1d : public BatchNorm {
 public:
  explicit BatchNorm1d(const Options& options) : BatchNorm(options, "batch_norm1d", 2, 3) {}
};
/** @brief Batch norm of images [N, channels, H, W]. */
class BatchNorm2d : public BatchNorm {
 public:
  explicit BatchNorm2d(const Options& options) : BatchNorm(options, "batch_norm2d", 4, 4) {}
};

}  // namespace bs::nn
