#pragma once
/** @file Random tensors. Every value is a function of (seed, offset, index of the element) alone.
 *  It is bit for bit the same on the CPU and on CUDA, for any number of threads. */
#include <bs/kernels/dispatch.h>
#include <bs/lib/random.h>

namespace bs {

/** @brief Uniform values in [0, 1): multiples of 2^-p for a dtype of p bits of precision. */
Tensor rand(const Shape& shape, DType dtype = f32, Device device = Device::cpu(),
            Generator& generator = default_generator());
/** @brief Values of the standard normal distribution (Box and Muller, computed in double). */
Tensor randn(const Shape& shape, DType dtype = f32, Device device = Device::cpu(),
             Generator& generator = default_generator());
/** @brief Integers in [low, high), all equally likely up to (high - low) / 2^64; any dtype.
 *  @throws Error unless low < high, both held by `dtype` without rounding. */
Tensor randint(int64_t low, int64_t high, const Shape& shape, DType dtype = i64,
               Device device = Device::cpu(), Generator& generator = default_generator());
/** @brief 1 with probability `p`, else 0; any dtype. @throws Error for p outside [0, 1]. */
Tensor bernoulli(double p, const Shape& shape, DType dtype = f32, Device device = Device::cpu(),
                 Generator& generator = default_generator());
/** @brief The numbers 0 .. n-1 in random order (Fisher and Yates), i64 on the host. */
Tensor permutation(int64_t n, Generator& generator = default_generator());

/** @brief Overwrites a contiguous floating tensor with uniform values in [low, high). */
void uniform_(const Tensor& x, double low, double high, Generator& generator = default_generator());
/** @brief Overwrites a contiguous floating tensor with mean + deviation * normal values. */
void normal_(const Tensor& x, double mean, double deviation,
             Generator& generator = default_generator());

BS_BACKENDS(
    void uniform(const Tensor& x, double low, double high, RandomState state, Stream stream);
    void normal(const Tensor& x, double mean, double deviation, RandomState state, Stream stream);
    void randint(const Tensor& x, int64_t low, uint64_t range, RandomState state, Stream stream);
    void bernoulli(const Tensor& x, double p, RandomState state, Stream stream))

}  // namespace bs
