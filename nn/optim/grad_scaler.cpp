#include <bs/nn/optim/grad_scaler.h>

#include <bs/autograd/binary.h>
#include <bs/nn/optim/clip_grad_norm.h>

#include <cmath>

namespace bs::optim {

namespace {

/// What is less has few bits or none in f32, and the gradients of a loss times it are zeros.
constexpr double least_scale = std::numeric_limits<float>::min();
bool is_scale(double scale) { return std::isfinite(scale) && scale >= least_scale; }

}  // namespace

GradScaler::GradScaler(const GradScalerOptions& options)
    : options_(options), scale_(options.scale) {
  BS_CHECK(is_scale(scale_), "grad_scaler: a scale of {}", scale_);
  BS_CHECK(options.growth > 1 && options.backoff > 0 && options.backoff < 1,
           "grad_scaler: growth {} must be above 1, backoff {} within (0, 1)", options.growth,
           options.backoff);
  BS_CHECK(options.interval >= 1, "grad_scaler: an interval of {} steps", options.interval);
}

Variable GradScaler::scale(const Variable& loss) const { return loss * scale_; }

bool GradScaler::step(Optimizer& optimizer, std::span<const Variable> parameters, double max_norm) {
  const Tensor norm = grad_norm(parameters);
  if (!std::isfinite(norm.item())) {
    const double lower = scale_ * options_.backoff;
    BS_CHECK(is_scale(lower),
             "grad_scaler: gradients of norm {} at a scale of {}, the last of many that were not "
             "finite; a loss, an input or a parameter holds NaN or infinity",
             norm.item(), scale_);
    scale_ = lower;
    good_steps_ = 0;
    return false;
  }
  optimizer.step({.norm = norm, .max_norm = max_norm, .scale = scale_});
  if (++good_steps_ == options_.interval) {
    scale_ *= options_.growth;
    good_steps_ = 0;
  }
  return true;
}

void GradScaler::restore(double scale, int64_t good_steps) {
  BS_CHECK(is_scale(scale) && good_steps >= 0, "grad_scaler: a scale of {} after {} steps", scale,
           good_steps);
  scale_ = scale;
  good_steps_ = good_steps;
}

}  // namespace bs::optim
