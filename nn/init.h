#pragma once
/** @file Initial values of parameters. All write to a contiguous floating tensor in place, and draw
 *  the same numbers on every device. A weight is [out, in]; further axes count to both fans. */
#include <bs/lib/random.h>
#include <bs/lib/tensor.h>

namespace bs::nn::init {

/** @brief Inputs one output is summed over, and outputs one input goes to. */
struct Fans {
  int64_t in = 0, out = 0;
};
/** @brief The fans of a weight [out, in, ...]. @throws Error for rank below 2. */
Fans fans(const Tensor& weight);

void zeros(const Tensor& x);
void ones(const Tensor& x);
void constant(const Tensor& x, double value);
/** @brief Uniform values in [low, high). */
void uniform(const Tensor& x, double low, double high, Generator& generator = default_generator());
/** @brief Normally distributed values. */
void normal(const Tensor& x, double mean, double deviation,
            Generator& generator = default_generator());

/** @brief Variance 2 / (fan_in + fan_out) times gain^2 (Glorot, Bengio, 2010). */
void xavier_uniform(const Tensor& weight, double gain = 1,
                    Generator& generator = default_generator());
void xavier_normal(const Tensor& weight, double gain = 1,
                   Generator& generator = default_generator());
/** @brief Variance 2 / ((1 + slope^2) fan_in), for a leaky ReLU of that slope (He et al., 2015).
 *  slope = sqrt(5) gives values in +-1 / sqrt(fan_in), PyTorch's choice for linear layers. */
void kaiming_uniform(const Tensor& weight, double slope = 0,
                     Generator& generator = default_generator());
void kaiming_normal(const Tensor& weight, double slope = 0,
                    Generator& generator = default_generator());
/** @brief Orthogonal rows, or columns where there are fewer of them, `gain` long: Q of
 *  a normal matrix [out, rest] (Saxe, McClelland, Ganguli, 2014). Computed on the host in double.
 */
void orthogonal(const Tensor& weight, double gain = 1, Generator& generator = default_generator());

}  // namespace bs::nn::init
