#pragma once
/** @file Reading and writing single elements by number.
 *
 *  Indices are i64 or i32, on x's device, with any strides. On the CPU an index outside its axis
 *  throws. CUDA is not waited for: there such a read is NaN (0 for integers), and such a write does
 *  nothing. */
#include <bs/kernels/dispatch.h>
#include <bs/kernels/operand.h>

#include <vector>

namespace bs {

/** @brief y[.., k, ..] = x[.., index[.., k, ..], ..] along `axis`, of index' shape.
 *  @param[in] index of x's rank, along other axes no longer than x */
Tensor gather(const Tensor& x, int axis, const Tensor& index);
/** @brief dx[.., i, ..] = sum of dy[.., k, ..] over the k with index[.., k, ..] = i.
 *  @param[in] shape of x */
Tensor gather_backward(const Tensor& dy, const Shape& shape, int axis, const Tensor& index);

/** @brief A copy of x in which y[.., index[.., k, ..], ..] = source[.., k, ..]. Of several writes
 * to one place the last counts, on both devices.
 *  @param[in] source of index' shape and x's dtype, or a number */
Tensor scatter(const Tensor& x, int axis, const Tensor& index, const Tensor& source);
Tensor scatter(const Tensor& x, int axis, const Tensor& index, Scalar source);
/** @brief The same, adding. The order of additions does not depend on threads; sums are kept in f32
 *  (f64 for f64, integers wrap around). */
Tensor scatter_add(const Tensor& x, int axis, const Tensor& index, const Tensor& source);

/** @brief x with source[.., k, ..] added at indices[k] of `axis`: with their sum, which is rounded
 *  once x is added.
 *  @param[in] indices [count]
 *  @param[in] source of x's shape but for `axis`, and of its dtype */
Tensor index_add(const Tensor& x, int axis, const Tensor& indices, const Tensor& source);
/** @brief The same, replacing. */
Tensor index_copy(const Tensor& x, int axis, const Tensor& indices, const Tensor& source);

/** @brief The elements of x at positions of its row-major order; of indices' shape. */
Tensor take(const Tensor& x, const Tensor& indices);

/** @brief x[i_0[k], i_1[k], ..., :] for the leading axes, one index tensor each, broadcast
 * together.
 *  @return of the indices' broadcast shape, followed by x's remaining axes */
Tensor index(const Tensor& x, const std::vector<Tensor>& indices);
/** @brief A copy of x in which those elements are `values`, or have them added.
 *  @param[in] values of x's dtype; broadcast to what `index` returns */
Tensor index_put(const Tensor& x, const std::vector<Tensor>& indices, const Tensor& values,
                 bool accumulate = false);
/** @brief The rows of x, seen as [rows, ...] with its leading axes joined, that `indices` name:
 * i64, of their broadcast shape; on CUDA one outside stays outside [0, rows). */
Tensor index_rows(const char* op, const Shape& shape, const std::vector<Tensor>& indices);

namespace detail {
/** @brief Zeros of `shape` with source written to them, as scatter does. */
Tensor scatter_to_zeros(const char* op, const Shape& shape, int axis, const Tensor& index,
                        const Tensor& source);

/** @brief Calls f(Type<U>{}) with an unsigned type of the dtype's size: a copy looks at no values.
 */
template <class F>
void visit_bits(DType dtype, F&& f) {
  switch (size_of(dtype)) {
    case 1:
      return f(Type<uint8_t>{});
    case 2:
      return f(Type<uint16_t>{});
    case 4:
      return f(Type<uint32_t>{});
    default:
      return f(Type<uint64_t>{});
  }
}
}  // namespace detail

/// x and y [outer, n, inner], source [outer, m, inner], all contiguous; index [outer, m, inner],
/// any strides. y is made of x, which may be y, or of zeros where x is undefined. What is scattered
/// may be one number, its strides 0.
BS_BACKENDS(void gather(const Tensor& x, const Tensor& index, const Tensor& y, Stream stream);
            void scatter(const Tensor& x, const Tensor& index, const Tensor& source,
                         const Tensor& y, Stream stream);
            void scatter_add(const Tensor& x, const Tensor& index, const Tensor& source,
                             const Tensor& y, Stream stream))
/// y [outer, n, inner] is x with source [outer, m, inner] at indices [m], all dense; y is not x.
BS_BACKENDS(void index_copy(const Tensor& x, const Tensor& indices, const Tensor& source,
                            const Tensor& y, Stream stream))

}  // namespace bs
