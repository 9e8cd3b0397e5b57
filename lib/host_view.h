#pragma once
/** @file Reading the elements of any tensor on the host, through its strides. */
#include <bs/lib/tensor.h>

namespace bs {

/** @brief The same elements, readable on the host. It is the tensor itself when that is there, else
 *  a copy of the memory its strides span, under the same strides. Waits for the device. */
Tensor host_view(const Tensor& tensor);
/** @brief The same elements on the host in row-major order: the tensor itself where it is that
 *  already, else a copy. Waits for the device. */
Tensor host_copy(const Tensor& tensor);

/** @brief Calls `f(value)` for every element of a host tensor, in row-major order.
 *  @param[in] tensor host tensor whose dtype is that of T; any strides */
template <class T, class F>
void for_each_value(const Tensor& tensor, F&& f) {
  if (tensor.numel() == 0) return;
  const T* data = tensor.data<T>();
  const int rank = tensor.rank();
  if (rank == 0) {
    f(*data);
    return;
  }
  const int64_t extent = tensor.size(-1);
  const int64_t stride = tensor.strides().back();
  Dims at = Dims::filled(rank, 0);  // the last place stays 0: the inner loop runs over it
  for (int64_t offset = 0;;) {
    for (int64_t i = 0; i < extent; ++i) f(data[offset + i * stride]);
    int axis = rank - 2;
    for (; axis >= 0; --axis) {
      offset += tensor.strides()[axis];
      if (++at[axis] < tensor.size(axis)) break;
      offset -= at[axis] * tensor.strides()[axis];
      at[axis] = 0;
    }
    if (axis < 0) return;
  }
}

}  // namespace bs
