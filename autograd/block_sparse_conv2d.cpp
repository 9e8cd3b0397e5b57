#include <bs/autograd/block_sparse_conv2d.h>

#include <bs/autograd/recorded.h>
#include <bs/autograd/reduce.h>

namespace bs {

namespace {

ProductForm form_of(const Shape& x, const LayoutPtr& layout, Extent2 kernel,
                    const Conv2dOptions& options) {
  return {.c =
              [=](const Tensor& a, const Tensor& b) {
                return block_sparse_conv2d(a, SparseTensor{layout, b}, kernel, options);
              },
          .a =
              [=](const Tensor& dc, const Tensor& b) {
                return block_sparse_conv2d_backward_x(dc, {layout, b}, kernel, x, options);
              },
          .b =
              [=](const Tensor& a, const Tensor& dc) {
                return block_sparse_conv2d_backward_w(a, dc, layout, kernel, options);
              }};
}

}  // namespace

Variable block_sparse_conv2d(const Variable& x, const SparseVariable& weight, Extent2 kernel,
                             const Variable& bias, const Conv2dOptions& options) {
  const bool wants[] = {x.requires_grad(), weight.values.requires_grad(), bias.requires_grad()};
  const Tensor y = block_sparse_conv2d(x.data(), weight.data(), kernel, options, data_of(bias));
  const ProductForm form = form_of(x.shape(), weight.layout, kernel, options);
  const SavedTensor kept(x.data()), values(weight.values.data());
  return tape().record("block_sparse_conv2d", {x, weight.values, bias}, y,
                       Twice{[=, wants = std::to_array(wants)](const Tensor& dy) {
                               return Grads{wants[0] ? form.a(dy, values) : Tensor(),
                                            wants[1] ? form.b(kept, dy) : Tensor(),
                                            wants[2] ? conv2d_backward_bias(dy) : Tensor()};
                             },
                             [=](const Recorded& r) {
                               VariableGrads grads =
                                   product_gradients("block_sparse_conv2d", r, r.dy(), kept, values,
                                                     form, GradientOrder::any);
                               if (r.wants(2)) grads[2] = sum(r.dy(), Dims{0, 2, 3});
                               return grads;
                             }},
                       GradientOrder::any);
}

}  // namespace bs
