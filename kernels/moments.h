#pragma once
/** @file What the optimisers of Adam's kin share: two moments a parameter, and their checks. */
#include <bs/kernels/parameter.h>

#include <cmath>

namespace bs {

/** @brief One parameter and its state, all of one shape, contiguous, updated in place. */
struct MomentParameter {
  Tensor value;          ///< floating
  Tensor gradient;       ///< of value's dtype, any strides; undefined: the parameter is left alone
  Tensor first_moment;   ///< f32 (f64 for f64), zeros before the first step
  Tensor second_moment;  ///< alike
  Tensor master;         ///< f32 copy of a 16-bit value, which the step is done on; else undefined

  static constexpr StateMembers<MomentParameter, 2> states = {&MomentParameter::first_moment,
                                                              &MomentParameter::second_moment};
};

/** @brief What each tensor of state is called. */
inline constexpr std::array<const char*, 2> moment_names = {"first_moment", "second_moment"};

/** @brief 1 - beta^step: what a moment of that many steps from zero is divided by. */
inline double bias_correction(double beta, int64_t step) {
  return 1 - std::pow(beta, static_cast<double>(step));
}

/** @brief Throws an Error naming `op` where step < 1 or a beta is outside of [0, 1). */
void check_moments(const char* op, int64_t step, double beta1, double beta2);
/** @brief Throws an Error naming `op` where one of them is negative or NaN. */
void check_rates(const char* op, double rate, double eps, double decay);

}  // namespace bs
