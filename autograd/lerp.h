#pragma once
/** @file Points between two tensors. A Tensor gives a Tensor. */
#include <bs/autograd/variable.h>

namespace bs {

/** @brief a + weight (b - a); shapes broadcast, dtypes promote. Weights beyond [0, 1] go on in a
 *  straight line; 0 gives a, and 1 gives b where a and b are finite. */
Variable lerp(const Variable& a, const Variable& b, double weight);
/** @brief The same with a weight for each element. Near 1 it is off from b by a rounding of a. */
Variable lerp(const Variable& a, const Variable& b, const Variable& weight);

inline Tensor lerp(const Tensor& a, const Tensor& b, double weight) {
  return lerp(Variable(a), Variable(b), weight).data();
}
inline Tensor lerp(const Tensor& a, const Tensor& b, const Tensor& weight) {
  return lerp(Variable(a), Variable(b), Variable(weight)).data();
}

}  // namespace bs
