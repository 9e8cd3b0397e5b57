#pragma once
/** @file Parts of tensors as Python writes them: x[1, :, 2:5, None] is
 *  at(x, {1, Slice(), Slice(2, 5), None()}). All are views. */
#include <bs/autograd/variable.h>

#include <concepts>
#include <initializer_list>
#include <limits>
#include <variant>

namespace bs {

/** @brief The positions begin, begin + step, ... before end; negative ones count from the end. */
struct Slice {
  static constexpr int64_t to_the_end = std::numeric_limits<int64_t>::max();

  Slice() = default;
  Slice(int64_t from, int64_t to = to_the_end, int64_t by = 1) : begin(from), end(to), step(by) {}

  int64_t begin = 0, end = to_the_end, step = 1;
};
struct None {};      ///< a new axis of extent 1
struct Ellipsis {};  ///< all axes that are not named; at most one

/** @brief What is done to one axis: a position (the axis disappears), a Slice, None, Ellipsis. */
class AxisIndex {
 public:
  template <std::integral I>
  AxisIndex(I position) : value_(static_cast<int64_t>(position)) {}  // NOLINT: written as it is
  AxisIndex(Slice slice) : value_(slice) {}                          // NOLINT
  AxisIndex(None) : value_(None()) {}                                // NOLINT
  AxisIndex(Ellipsis) : value_(Ellipsis()) {}                        // NOLINT

  const std::variant<int64_t, Slice, None, Ellipsis>& value() const { return value_; }

 private:
  std::variant<int64_t, Slice, None, Ellipsis> value_;
};

/** @brief The part of x that the indices name; axes behind the last one stay whole.
 *  @throws Error for more indices than axes, a second ellipsis, or a position out of range. */
Variable at(const Variable& x, std::initializer_list<AxisIndex> indices);
Tensor at(const Tensor& x, std::initializer_list<AxisIndex> indices);
/** @brief Writes `values`, which broadcast, into that part of x. Not recorded.
 *  @throws Error like `at`, or when values do not broadcast to the part. */
void assign(const Tensor& x, std::initializer_list<AxisIndex> indices, const Tensor& values);
void assign(const Tensor& x, std::initializer_list<AxisIndex> indices, double value);

}  // namespace bs
