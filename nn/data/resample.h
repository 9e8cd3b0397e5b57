#pragma once
/** @file Changing the sampling rate of a recording, or its speed. */
#include <cstdint>
#include <span>
#include <vector>

namespace bs::data {

/** @brief Samples a second that sound may have. */
inline constexpr int64_t most_rate = 1 << 22;

/** @brief The signal at `to` instead of `from` samples a second: ceil(n to / from) values.
 *
 *  Each output is a sum over the inputs around it. The weights are a sinc low-pass under a Hann
 *  window of `zeros` zero crossings a side. It cuts off at `rolloff` times half the lower of both
 *  rates. Weights are normalised so that a constant stays one. Beyond the ends the signal is zero.
 *  @throws Error unless both rates are positive. */
std::vector<float> resample(std::span<const float> samples, int64_t from, int64_t to,
                            int zeros = 16, double rolloff = 0.95);

/** @brief The recording played `factor` times as fast, pitch included (Ko et al., 2015); the factor
 *  is taken to a hundredth. @throws Error for a factor outside [0.1, 10]. */
std::vector<float> change_speed(std::span<const float> samples, double factor);

}  // namespace bs::data
