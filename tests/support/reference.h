#pragma once
/** @file Plain double arrays: what references compute with, independent of every kernel. */
#include <bs/lib/tensor.h>

#include <cmath>
#include <cstdint>
#include <vector>

namespace bs::test {

/** @brief A dense row-major array of doubles. */
struct Reference {
  Shape shape;
  std::vector<double> values;

  explicit Reference(Shape s = {}) : shape(s), values(static_cast<size_t>(s.product())) {}
  /** @brief The elements of any tensor on any device, in order. */
  static Reference of(const Tensor& tensor);
  /** @brief A tensor of `dtype` with these values, rounded. */
  Tensor tensor(DType dtype, Device device) const;

  double& operator[](size_t i) { return values[i]; }
  double operator[](size_t i) const { return values[i]; }
  /** @brief Element at an index, one number an axis. */
  double& at(std::initializer_list<int64_t> index);
  double at(std::initializer_list<int64_t> index) const;
};

/** @brief Uniform values in [low, high) from a fixed generator; `seed` picks the sequence. */
Reference random_reference(const Shape& shape, uint64_t seed, double low = -1, double high = 1);

/** @brief Whether both have the same shape and the same bytes, wherever they lie. */
bool same_bits(const Tensor& x, const Tensor& y);

}  // namespace bs::test
