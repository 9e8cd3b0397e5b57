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
  double& at(std::initializer_list<int64_t> index) { return values[place(index)]; }
  const double& at(std::initializer_list<int64_t> index) const { return values[place(index)]; }

 private:
  using Index = std::initializer_list<int64_t>;
  // Inline, and by the extents' pointer: references spend their time here.
  size_t place(Index index) const {
    if (static_cast<int>(index.size()) != shape.rank()) no_place(index);
    const int64_t* extent = shape.begin();
    int64_t place = 0;
    for (int64_t i : index) {
      if (i < 0 || i >= *extent) no_place(index);
      place = place * *extent++ + i;
    }
    return static_cast<size_t>(place);
  }
  [[noreturn]] void no_place(Index index) const;
};

/** @brief Uniform values in [low, high) from a fixed generator; `seed` picks the sequence. */
Reference random_reference(const Shape& shape, uint64_t seed, double low = -1, double high = 1);

/** @brief Whether both have the same shape and the same bytes, wherever they lie. */
bool same_bits(const Tensor& x, const Tensor& y);

}  // namespace bs::test
