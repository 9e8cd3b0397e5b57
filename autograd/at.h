#pragma once
/** @file Parts of tensors as Python writes them: x[1, :, 2:5, None] is
 *  at(x, {1, Slice(), Slice(2, 5), None()}). They are views, but for masks and lists of numbers. */
#include <bs/autograd/variable.h>

#include <concepts>
#include <initializer_list>
#include <limits>
#include <utility>
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

/** @brief What is done to one axis: a position (the axis disappears), a Slice, None, Ellipsis, or
 *  a Tensor. A mask of bool stands for as many axes as it has, and leaves one with the elements
 *  where it is true, in row-major order. A vector of i64 or i32 chooses positions of one axis. */
class AxisIndex {
 public:
  using Value = std::variant<int64_t, Slice, None, Ellipsis, Tensor>;

  template <std::integral I>
  AxisIndex(I position) : value_(static_cast<int64_t>(position)) {}  // NOLINT: written as it is
  AxisIndex(Slice slice) : value_(slice) {}                          // NOLINT
  AxisIndex(None) : value_(None()) {}                                // NOLINT
  AxisIndex(Ellipsis) : value_(Ellipsis()) {}                        // NOLINT
  AxisIndex(Tensor chosen) : value_(std::move(chosen)) {}            // NOLINT

  const Value& value() const { return value_; }

 private:
  Value value_;
};

/** @brief The part of x that the indices name; axes behind the last one stay whole. A view; with a
 *  Tensor among the indices a copy, for which a GPU is waited for where it is a mask.
 *  @throws Error for more indices than axes, a second ellipsis or Tensor, or a position out of
 *    range. Also for a mask whose shape is not that of its axes. */
Variable at(const Variable& x, std::initializer_list<AxisIndex> indices);
Tensor at(const Tensor& x, std::initializer_list<AxisIndex> indices);
/** @brief Writes `values`, which broadcast, into that part of x. Not recorded.
 *  @throws Error like `at`, or when values do not broadcast to the part. */
void assign(const Tensor& x, std::initializer_list<AxisIndex> indices, const Tensor& values);
void assign(const Tensor& x, std::initializer_list<AxisIndex> indices, double value);

}  // namespace bs
