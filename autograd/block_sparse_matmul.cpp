#include <bs/autograd/block_sparse_matmul.h>

#include <bs/autograd/recorded.h>

namespace bs {

SparseVariable sdd(const Variable& a, const Variable& b, const LayoutPtr& layout, Transpose t) {
  const ProductForm form{
      .c = [=](const Tensor& x, const Tensor& y) { return sdd(x, y, layout, t).values; },
      .a =
          [=, shape = a.shape()](const Tensor& dc, const Tensor& y) {
            return sdd_backward_a({layout, dc}, y, shape, t);
          },
      .b =
          [=, shape = b.shape()](const Tensor& x, const Tensor& dc) {
            return sdd_backward_b(x, {layout, dc}, shape, t);
          }};
  return {layout, record_product("sdd", a, b, form.c(a.data(), b.data()), form)};
}

Variable dsd(const SparseVariable& s, const Variable& b, Transpose t) {
  const LayoutPtr layout = s.layout;
  const ProductForm form{.c =
                             [=](const Tensor& x, const Tensor& y) {
                               return dsd(SparseTensor{layout, x}, y, t);
                             },
                         .a =
                             [=, shape = s.values.shape()](const Tensor& dc, const Tensor& y) {
                               return dsd_backward_s(dc, y, layout, shape, t);
                             },
                         .b =
                             [=, shape = b.shape()](const Tensor& x, const Tensor& dc) {
                               return dsd_backward_b({layout, x}, dc, shape, t);
                             }};
  return record_product("dsd", s.values, b, form.c(s.values.data(), b.data()), form);
}

Variable dds(const Variable& a, const SparseVariable& s, Transpose t) {
  const LayoutPtr layout = s.layout;
  const ProductForm form{.c =
                             [=](const Tensor& x, const Tensor& y) {
                               return dds(x, SparseTensor{layout, y}, t);
                             },
                         .a =
                             [=, shape = a.shape()](const Tensor& dc, const Tensor& y) {
                               return dds_backward_a(dc, {layout, y}, shape, t);
                             },
                         .b =
                             [=, shape = s.values.shape()](const Tensor& x, const Tensor& dc) {
                               return dds_backward_s(x, dc, layout, shape, t);
                             }};
  return record_product("dds", a, s.values, form.c(a.data(), s.values.data()), form);
}

}  // namespace bs
