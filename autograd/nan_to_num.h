#pragma once
/** @file Replaces NaN and infinities. A Tensor gives a Tensor. */
#include <bs/autograd/variable.h>

#include <limits>

namespace bs {

/** @brief x with `nan` in place of NaN, and `positive` and `negative` in place of infinities. An
 *  infinity among these two stands for the largest finite number of x's dtype, of either sign.
 *  What was replaced gets the gradient 0. Integers are returned as they are. */
Variable nan_to_num(const Variable& x, double nan = 0,
                    double positive = std::numeric_limits<double>::infinity(),
                    double negative = -std::numeric_limits<double>::infinity());
inline Tensor nan_to_num(const Tensor& x, double nan = 0,
                         double positive = std::numeric_limits<double>::infinity(),
                         double negative = -std::numeric_limits<double>::infinity()) {
  return nan_to_num(Variable(x), nan, positive, negative).data();
}

}  // namespace bs
