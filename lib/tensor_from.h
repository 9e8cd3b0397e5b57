#pragma once
/** @file Tensors of the values of a container. */
#include <bs/lib/tensor.h>

#include <initializer_list>
#include <vector>

namespace bs {

/** @brief Copies `values` into new host memory; without `shape` they are a vector.
 *  @throws Error when the count does not fit the shape. */
template <class T>
Tensor tensor(const std::vector<T>& values, const Shape& shape) {
  return Tensor::from(std::span<const T>(values), shape);
}
template <class T>
Tensor tensor(const std::vector<T>& values) {
  return tensor(values, {static_cast<int64_t>(values.size())});
}
template <class T>
Tensor tensor(std::initializer_list<T> values) {
  return Tensor::from(values);
}
template <class T>
Tensor tensor(std::initializer_list<T> values, const Shape& shape) {
  return Tensor::from(values, shape);
}

}  // namespace bs
