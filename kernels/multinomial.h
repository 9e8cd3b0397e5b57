#pragma once
/** @file Drawing classes. */
#include <bs/kernels/dispatch.h>
#include <bs/lib/random.h>

namespace bs {

struct MultinomialOptions {
  bool replacement = false;  ///< whether a class may be drawn again
};

/** @brief `count` classes [..., count], i64, for each row of weights [..., classes], which need not
 *  sum to 1. Without replacement the draws come in the order in which they were drawn. Both devices
 *  draw the same then: the classes whose exponential clocks, in f32 (f64 for f64), ring first.
 *  Classes of weight 0 come when no others are left.
 *  @throws Error for more draws than classes without replacement; on the CPU also for a weight that
 *  is negative or not finite, and for a row of zeros. */
Tensor multinomial(const Tensor& weights, int64_t count, const MultinomialOptions& options = {},
                   Generator& generator = default_generator());

/// clocks[i] = exponential_clock of weights[i] in f64 for f64, else its root in f32; both dense and
/// of one shape. Element i takes word i of the sequence, in f64 two words.
BS_BACKENDS(void exponential_clocks(const Tensor& weights, const Tensor& clocks, RandomState state,
                                    Stream stream))

}  // namespace bs
