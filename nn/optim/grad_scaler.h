#pragma once
/** @file Losses multiplied so that gradients in f16 neither vanish nor overflow. bf16 needs none of
 *  it. */
#include <bs/nn/optim/optimizer.h>

#include <limits>
#include <span>

namespace bs::optim {

struct GradScalerOptions {
  double scale = 65536;  ///< to begin with
  double growth = 2;     ///< factor after `interval` steps that were finite
  double backoff = 0.5;  ///< factor after a step that was not
  int64_t interval = 2000;
};

/** @brief Finds the largest scale that works by trying.
 *  @code
 *  scaler.scale(loss).backward();
 *  scaler.step(optimizer, parameters);
 *  @endcode */
class GradScaler {
 public:
  /** @throws Error for options that cannot be, such as a scale below 2^-126. */
  explicit GradScaler(const GradScalerOptions& options = {});

  /** @brief The loss times the scale. */
  Variable scale(const Variable& loss) const;
  /** @brief One step with the gradients divided by the scale, and their norm at most `max_norm`;
   * none where a gradient is not finite. Gradients stay in f16 until the step divides them in f32.
   * Waits for the device.
   *  @return whether the step was done
   *  @throws Error where the scale would fall below the least normal f32, 2^-126. It does so
   *    143 steps after 65536: no scale helps, and with a lower one gradients are zeros. */
  bool step(Optimizer& optimizer, std::span<const Variable> parameters,
            double max_norm = std::numeric_limits<double>::infinity());

  double scale() const { return scale_; }
  /** @brief Steps since the scale changed or one was left out. */
  int64_t good_steps() const { return good_steps_; }
  /** @brief Goes on from values that were saved. */
  void restore(double scale, int64_t good_steps);

 private:
  GradScalerOptions options_;
  double scale_;
  int64_t good_steps_ = 0;
};

}  // namespace bs::optim
