#pragma once
/** @file Drawing classes. */
#include <bs/kernels/dispatch.h>
#include <bs/lib/random.h>

namespace bs {

struct MultinomialOptions {
  bool replacement = false;  ///< whether a class may be drawn again
};

/** @brief `count` classes [..., count], i64, for each row of weights [..., classes], which need not
 *  sum to 1. Without replacement the draws come in the order in which they were drawn.
 *  @throws Error for more draws than classes without replacement; on the CPU also for a weight that
 *  is negative or not finite. */
Tensor multinomial(const Tensor& weights, int64_t count, const MultinomialOptions& options = {},
                   Generator& generator = default_generator());

}  // namespace bs
