#include <bs/kernels/adafactor.h>

#include <bs/kernels/axpby.h>
#include <bs/kernels/binary.h>
#include <bs/kernels/reduce.h>
#include <bs/kernels/unary.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

namespace bs {

namespace {

constexpr double infinity = std::numeric_limits<double>::infinity();

void check_options(const AdafactorOptions& o) {
  BS_CHECK(o.beta2_decay <= 0, "adafactor: a beta2_decay of {} is positive", o.beta2_decay);
  BS_CHECK(o.learning_rate >= 0 && o.eps1.value_or(0) >= 0 && o.eps2 >= 0 && o.weight_decay >= 0,
           "adafactor: a rate of {}, eps of {} and {}, a decay of {}: none may be negative",
           o.learning_rate, o.eps1.value_or(0), o.eps2, o.weight_decay);
  BS_CHECK(o.d >= 1, "adafactor: d is {}, less than 1", o.d);
}

std::vector<AdafactorParameter> checked(std::span<const AdafactorParameter> parameters,
                                        const AdafactorOptions& options, const GradientClip& clip) {
  auto present = checked_parameters("adafactor", parameters, std::array<const char*, 0>(), clip);
  const auto names = state_names(options);
  for (const AdafactorParameter& p : present)
    for (size_t i = 0; i < names.size(); ++i)
      if (const auto shape = AdafactorParameter::state_shape(i, p.value.shape()))
        check_state("adafactor", names[i], p.value, p.*AdafactorParameter::states[i], *shape);
  return present;
}

Tensor square(const Tensor& x) { return mul(x, x); }
Tensor root_mean_square(const Tensor& x) { return sqrt(mean(square(x))); }

/// The variances of all parameters, and what is added to them.
std::vector<AxpbyParameter> squares_of(std::span<const AdafactorParameter> parameters,
                                       const std::vector<Tensor>& gradients) {
  std::vector<AxpbyParameter> squares;
  for (size_t i = 0; i < gradients.size(); ++i) {
    const AdafactorParameter& p = parameters[i];
    const Tensor of = square(gradients[i]);
    if (of.rank() > 1) {
      squares.push_back({p.row_variance, mean(of, -1, true), {}});
      squares.push_back({p.column_variance, mean(of, -2, true), {}});
    } else {
      squares.push_back({p.variance, of, {}});
    }
  }
  return squares;
}

/// Parameters with copies of their variances, which stand for those in `squares` too.
std::vector<AdafactorParameter> with_copies(std::span<const AdafactorParameter> parameters,
                                            std::vector<AxpbyParameter>& squares) {
  std::vector<AdafactorParameter> copied(parameters.begin(), parameters.end());
  size_t at = 0;
  for (AdafactorParameter& p : copied)
    for (size_t i = 0; i < AdafactorParameter::states.size(); ++i) {
      if (!AdafactorParameter::state_shape(i, p.value.shape())) continue;
      Tensor& variance = p.*AdafactorParameter::states[i];
      squares[at++].value = variance = clone(variance);
    }
  return copied;
}

/// The estimate of the mean square of each element.
Tensor estimate(const AdafactorParameter& p, double eps1) {
  if (p.value.rank() < 2) return p.variance;
  const Tensor scale = clamp(mean(p.row_variance, -2, true), eps1, infinity);
  return mul(div(p.row_variance, scale), p.column_variance);
}

/// The weights of a parameter whose variances have moved on, and what they lose.
AxpbyParameter step_of(const AdafactorParameter& p, const Tensor& gradient,
                       const AdafactorOptions& options, double rho, const Tensor& numbers) {
  const Tensor weights = full_precision(p);
  const double eps1 =
      options.eps1.value_or(weights.dtype() == f64 ? std::numeric_limits<double>::epsilon()
                                                   : std::numeric_limits<float>::epsilon());
  const Tensor v = clamp(estimate(p, eps1), eps1 * eps1, infinity);
  const Tensor u = mul(gradient, rsqrt(v));
  Tensor alpha = maximum(root_mean_square(weights), options.eps2);
  alpha = numbers.defined() ? mul(alpha, cast(numbers.slice(0, 4, 5).view({}), alpha.dtype()))
                            : mul(alpha, rho);
  const Tensor length = div(alpha, maximum(div(root_mean_square(u), options.d), 1));
  return {weights, mul(u, length), {}};
}

}  // namespace

std::optional<Shape> AdafactorParameter::state_shape(size_t i, const Shape& shape) {
  const int rank = shape.rank();
  if ((i == 2) != (rank < 2)) return std::nullopt;
  Shape of = shape;
  if (rank >= 2) of[i == 0 ? rank - 1 : rank - 2] = 1;
  return of;
}

PreparedStep prepared_adafactor(std::span<const AdafactorParameter> parameters, int64_t step,
                                const AdafactorOptions& options, const GradientClip& clip,
                                const Tensor& numbers) {
  BS_CHECK(step >= 1, "adafactor: step {} comes before the first", step);
  check_options(options);
  auto present = checked(parameters, options, clip);
  if (present.empty()) return [] {};
  check_numbers("adafactor", numbers, 5, present.front().value.device());
  const bool live = numbers.defined();
  const auto [keep, mix, kept, share, rho] = adafactor_numbers(step, options);
  std::vector<Tensor> gradients;
  gradients.reserve(present.size());
  for (const AdafactorParameter& p : present)
    gradients.push_back(clone(cast(p.gradient, state_dtype(p.value.dtype()))));
  clip_gradients(gradients, clip);
  const GradientClip skips = only_skips(clip);
  const Tensor shares = live ? numbers.slice(0, 2, 4) : Tensor();
  std::vector<AxpbyParameter> squares = squares_of(present, gradients);
  auto move = prepared_axpby(squares, kept, share, skips, shares);
  const auto moved = with_copies(present, squares);
  axpby(squares, kept, share, skips, shares);
  std::vector<AxpbyParameter> steps;
  for (size_t i = 0; i < moved.size(); ++i)
    steps.push_back(step_of(moved[i], gradients[i], options, rho, numbers));
  auto change = prepared_axpby(steps, keep, mix, skips, live ? numbers.slice(0, 0, 2) : Tensor());
  return [present = std::move(present), steps = std::move(steps), move = std::move(move),
          change = std::move(change)] {
    note_step("adafactor", present);
    move();
    change();
    for (size_t i = 0; i < present.size(); ++i) round_back(steps[i].value, present[i]);
  };
}

void adafactor(std::span<const AdafactorParameter> parameters, int64_t step,
               const AdafactorOptions& options, const GradientClip& clip, const Tensor& numbers) {
  prepared_adafactor(parameters, step, options, clip, numbers)();
}

std::array<double, 5> adafactor_numbers(int64_t step, const AdafactorOptions& options) {
  check_options(options);
  const auto t = static_cast<double>(step);
  const double share = std::pow(t, options.beta2_decay);
  return {1 - options.learning_rate * options.weight_decay, -1, 1 - share, share,
          std::min(options.learning_rate, 1 / std::sqrt(t))};
}

}  // namespace bs
