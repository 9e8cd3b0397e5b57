#pragma once
/** @file Differentiable reading and writing by number; see kernels/gather.h. All save the indices.
 *  Where one place is written more than once, every source gets the gradient of that place. That is
 *  exact for scatter_add, index_add and index_put with `accumulate` alone. */
#include <bs/autograd/variable.h>
#include <bs/kernels/operand.h>

#include <vector>

namespace bs {

Variable gather(const Variable& x, int axis, const Tensor& index);
Variable scatter(const Variable& x, int axis, const Tensor& index, const Variable& source);
Variable scatter(const Variable& x, int axis, const Tensor& index, Scalar source);
Variable scatter_add(const Variable& x, int axis, const Tensor& index, const Variable& source);
Variable index_add(const Variable& x, int axis, const Tensor& indices, const Variable& source);
Variable index_copy(const Variable& x, int axis, const Tensor& indices, const Variable& source);
Variable take(const Variable& x, const Tensor& indices);
Variable index(const Variable& x, const std::vector<Tensor>& indices);
Variable index_put(const Variable& x, const std::vector<Tensor>& indices, const Variable& values,
                   bool accumulate = false);

}  // namespace bs
