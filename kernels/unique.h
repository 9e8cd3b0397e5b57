#pragma once
/** @file Which values occur. */
#include <bs/kernels/dispatch.h>

namespace bs {

/** @brief The values that occur in x, in order. */
struct Unique {
  Tensor values;   ///< [count]
  Tensor inverse;  ///< of x's shape: values[inverse] is x
  Tensor counts;   ///< [count]: how often each occurs
};
/** @brief Sorts all of x; on CUDA it waits for the device. Each NaN is a value of its own. */
Unique unique(const Tensor& x);

/// Dense x [n]. `order` [n], i32 or for 2^31 elements i64, becomes the positions that argsort
/// gives; `sorted` [n] the elements there, and `first` [n], bool, whether one differs from the one
/// before. `before` is what count_nonzero gives for `first`. `inverse` [n] i64 becomes each
/// element's group; `values` [groups] a group's first element and `begins` [groups] i64 where it
/// begins in the order.
BS_BACKENDS(void order_groups(const Tensor& x, const Tensor& order, const Tensor& sorted,
                              const Tensor& first, Stream stream);
            void number_groups(const Tensor& sorted, const Tensor& order, const Tensor& first,
                               const Tensor& before, const Tensor& values, const Tensor& begins,
                               const Tensor& inverse, Stream stream))

}  // namespace bs
