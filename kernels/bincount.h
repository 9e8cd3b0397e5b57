#pragma once
/** @file How often numbers occur. */
#include <bs/kernels/dispatch.h>

namespace bs {

/** @brief How often 0, 1, ... occur in x, any shape of i64 or i32; `weights` of x's shape are
 * summed instead. Waits for the device. @param[in] least extent of the result
 *  @throws Error for negative numbers. */
Tensor bincount(const Tensor& x, const Tensor& weights = {}, int64_t least = 0);

/// The numbers below it are counted in the pass that finds the bounds.
inline constexpr int64_t counted_numbers = 8192;

/// Dense x [n] of i64 or i32, n > 0. `found` [counted_numbers + 2] i64 becomes how often each of
/// 0, 1, ... occurs, and then the least and the greatest number. `counts` [bins] i64 becomes how
/// often each occurs; all are below `bins`.
BS_BACKENDS(void count_few(const Tensor& x, const Tensor& found, Stream stream);
            void count_all(const Tensor& x, const Tensor& counts, Stream stream))

}  // namespace bs
