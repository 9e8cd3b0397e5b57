#pragma once
/** @file Adafactor (Shazeer, Stern, 2018): second moments of a matrix as one of each row and one of
 *  each column. */
#include <bs/kernels/parameter.h>

#include <optional>

namespace bs {

/** @brief One parameter and its state, contiguous, updated in place. */
struct AdafactorParameter {
  Tensor value;         ///< floating
  Tensor gradient;      ///< of value's dtype, any strides; undefined: the parameter is left alone
  Tensor row_variance;  ///< [..., rows, 1] of f32 (f64 for f64), zeros before the first step
  Tensor column_variance;  ///< [..., 1, columns], alike
  Tensor variance;         ///< for a vector or a number in their place: of its shape
  Tensor master;  ///< f32 copy of a 16-bit value, which the step is done on; else undefined

  static constexpr StateMembers<AdafactorParameter, 3> states = {
      &AdafactorParameter::row_variance, &AdafactorParameter::column_variance,
      &AdafactorParameter::variance};
  /** @brief The shape of state number i of a parameter of `shape`; none where it has no such. */
  static std::optional<Shape> state_shape(size_t i, const Shape& shape);
};

struct AdafactorOptions {
  double learning_rate = 1e-2;
  double beta2_decay = -0.8;  ///< step t takes t^beta2_decay of the new squares
  /** The lowest mean square of a row; the rounding step of f32, or f64 for f64, where not given. */
  std::optional<double> eps1 = {};
  double eps2 = 1e-3;  ///< lowest root mean square of a parameter
  double d = 1;        ///< highest root mean square of an update
  double weight_decay = 0;
};
/** @brief What the tensors of state are called. */
inline std::array<const char*, 3> state_names(const AdafactorOptions&) {
  return {"row_variance", "column_variance", "variance"};
}

/** @brief One step, with g the gradient after clipping, t the number of the step, from 1, and
 *  rms x = |x| / sqrt(number of elements):
 *  alpha = max(eps2, rms w) min(lr, 1 / sqrt(t)); w *= 1 - lr * decay; over the last two axes
 *  r += t^beta2_decay (mean of a row's g^2 - r), c alike of columns, v = r c / max(mean r, eps1);
 *  for less than two axes v += t^beta2_decay (g^2 - v); u = g / sqrt(max(v, eps1^2));
 *  w -= alpha / max(1, rms u / d) u.
 *  16-bit values are the rounded master; without a master they are stepped in f32 and rounded.
 *  @throws Error when shapes, dtypes, devices or layouts do not fit, step < 1, or an option has a
 *  sign that it cannot have. */
void adafactor(std::span<const AdafactorParameter> parameters, int64_t step,
               const AdafactorOptions& options, const GradientClip& clip = {},
               const Tensor& numbers = {});
/** @brief The same step, checked, to be done later. */
PreparedStep prepared_adafactor(std::span<const AdafactorParameter> parameters, int64_t step,
                                const AdafactorOptions& options, const GradientClip& clip = {},
                                const Tensor& numbers = {});
/** @brief What depends on the step and its rate. As a tensor of f64 on the parameters' device these
 *  are the last argument above, and a graph can go on from step to step. */
std::array<double, 5> adafactor_numbers(int64_t step, const AdafactorOptions& options);

/// Parameters of any floating dtypes, none empty, all with a contiguous gradient.
BS_BACKENDS(void adafactor(std::span<const AdafactorParameter> parameters, int64_t step,
                           const AdafactorOptions& options, const GradientClip& clip,
                           const Tensor& numbers, Stream stream))

}  // namespace bs
