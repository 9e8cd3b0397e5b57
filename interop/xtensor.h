#pragma once
/** @file Tensors of the CPU as arrays of xtensor, and back. Link to the target bs::xtensor: GCC
 * needs an option of it (see docs/files.md). */
#include <bs/lib/tensor.h>

#include <memory>
#include <type_traits>
#include <utility>
#include <vector>
#include <xtensor/xadapt.hpp>
#include <xtensor/xarray.hpp>
#include <xtensor/xnoalias.hpp>
#include <xtensor/xtensor.hpp>

namespace bs {

/** @brief What `to_xtensor` gives: an `xt` array of any rank over a tensor's memory. */
template <class T, xt::layout_type Layout = xt::layout_type::row_major>
using XtensorView =
    xt::xarray_adaptor<xt::xbuffer_adaptor<T*, xt::smart_ownership, std::shared_ptr<const Tensor>>,
                       Layout, std::vector<size_t>>;

/** @brief The elements of `tensor` as an array of xtensor, without a copy. It can be read, written
 *  and broadcast, and it keeps the memory alive.
 *  @tparam T the element's type: float, double, int32_t, int64_t, uint8_t, bool, half, bfloat16.
 *  @tparam Layout `row_major`, or `dynamic` for a tensor of any strides, which xtensor reads more
 *  slowly; functions such as `xt::argmax` refuse it.
 *  @throws Error for another dtype, a tensor on a GPU, one that is not contiguous where Layout is
 *  `row_major`, or a negative stride. */
template <class T, xt::layout_type Layout = xt::layout_type::row_major>
XtensorView<T, Layout> to_xtensor(const Tensor& tensor) {
  using View = XtensorView<T, Layout>;
  BS_CHECK(tensor.defined(), "to_xtensor: an undefined tensor");
  BS_CHECK(tensor.device().is_cpu(), "to_xtensor: a tensor on {}: copy it to the CPU first",
           tensor.device());
  std::vector<size_t> shape(static_cast<size_t>(tensor.rank()));
  for (int i = 0; i < tensor.rank(); ++i)
    shape[static_cast<size_t>(i)] = static_cast<size_t>(tensor.size(i));
  typename View::storage_type memory(tensor.data<T>(), static_cast<size_t>(tensor.numel()),
                                     std::make_shared<const Tensor>(tensor));
  if constexpr (Layout == xt::layout_type::row_major) {
    BS_CHECK(tensor.is_contiguous(),
             "to_xtensor: shape {} with strides {} is not contiguous: call contiguous(), or ask "
             "for the layout `dynamic`",
             tensor.shape(), tensor.strides());
    return View(std::move(memory), shape);
  } else {
    static_assert(Layout == xt::layout_type::dynamic, "row_major or dynamic");
    typename View::strides_type strides(shape.size());
    for (int i = 0; i < tensor.rank(); ++i) {
      const int64_t stride = tensor.size(i) > 1 ? tensor.strides()[i] : 0;  // broadcast: stride 0
      BS_CHECK(stride >= 0, "to_xtensor: stride {} of axis {} is negative", stride, i);
      strides[static_cast<size_t>(i)] = static_cast<ptrdiff_t>(stride);
    }
    return View(std::move(memory), shape, strides);
  }
}

/** @brief The DType that holds values of an xtensor expression. Floats and bool as they are, u8 as
 *  it is, smaller signed integers as i32, and all others, such as sizes, as i64. */
template <class Value>
using XtensorElement = std::conditional_t<
    std::is_same_v<Value, bool> || std::is_floating_point_v<Value> ||
        std::is_same_v<Value, uint8_t> || std::is_same_v<Value, half> ||
        std::is_same_v<Value, bfloat16>,
    Value,
    std::conditional_t<(sizeof(Value) < 4 || (sizeof(Value) == 4 && std::is_signed_v<Value>)),
                       int32_t, int64_t>>;

/** @brief Evaluates any expression of xtensor into a new row-major tensor on the CPU.
 *  @throws Error for more axes than a Shape has, OutOfMemory. */
template <class Expression>
Tensor from_xtensor(const xt::xexpression<Expression>& expression) {
  const Expression& e = expression.derived_cast();
  using T = XtensorElement<std::decay_t<typename Expression::value_type>>;
  Shape shape;
  BS_CHECK(e.dimension() <= Shape::max_rank, "from_xtensor: {} axes, the most are {}",
           e.dimension(), Shape::max_rank);
  for (const auto extent : e.shape()) shape.push_back(static_cast<int64_t>(extent));
  const Tensor tensor = Tensor::empty(shape, dtype_of<T>);
  auto target = to_xtensor<T>(tensor);
  xt::noalias(target) = xt::cast<T>(e);
  return tensor;
}

/** @brief Takes over the memory of a row-major array that is handed over (`std::move`), without a
 *  copy. */
template <class T, class Allocator, class Axes>
requires std::is_same_v<XtensorElement<T>, T> Tensor from_xtensor(
    xt::xarray_container<xt::uvector<T, Allocator>, xt::layout_type::row_major, Axes>&& array) {
  using Array = std::decay_t<decltype(array)>;
  Shape shape;
  BS_CHECK(array.dimension() <= Shape::max_rank, "from_xtensor: {} axes, the most are {}",
           array.dimension(), Shape::max_rank);
  for (const auto extent : array.shape()) shape.push_back(static_cast<int64_t>(extent));
  const auto owner = std::make_shared<Array>(std::move(array));
  return Tensor::from_blob(owner->data(), shape, dtype_of<T>, Device::cpu(), [owner] {});
}

}  // namespace bs
