#include <bs/kernels/block_sparse_convert.h>
#include <bs/kernels/copy.h>

namespace bs {

namespace {

/// The last axes of the dense matrix: with the heads where there are several.
Shape matrix_axes(const Layout& layout) {
  Shape axes{layout.height(), layout.width()};
  if (layout.heads() != 1) axes.insert(0, layout.heads());
  return axes;
}

Shape joined(Shape lead, const Shape& axes) {
  for (int64_t extent : axes) lead.push_back(extent);
  return lead;
}

}  // namespace

Tensor to_dense(const SparseTensor& s) {
  check_sparse("to_dense", s);
  const Shape lead = s.values.shape().slice(0, s.values.rank() - 3);
  Tensor dense =
      Tensor::empty(joined(lead, matrix_axes(*s.layout)), s.values.dtype(), s.values.device());
  if (dense.numel() > 0)
    BS_DISPATCH(dense.device(), to_dense, contiguous(s.values), s.layout->view(dense.device()),
                dense);
  return dense;
}

SparseTensor to_sparse(const Tensor& dense, const LayoutPtr& layout) {
  BS_CHECK(layout, "to_sparse: no layout");
  const Shape axes = matrix_axes(*layout);
  const int lead = dense.rank() - axes.rank();
  BS_CHECK(lead >= 0 && dense.shape().slice(lead, dense.rank()) == axes,
           "to_sparse: {} does not end in the {} of the layout, {} x {} blocks of {}",
           dense.shape(), axes, layout->rows(), layout->cols(), layout->block());
  const int64_t block = layout->block();
  const Tensor values =
      Tensor::empty(joined(dense.shape().slice(0, lead), {layout->nnz(), block, block}),
                    dense.dtype(), dense.device());
  if (values.numel() > 0)
    BS_DISPATCH(dense.device(), to_sparse, contiguous(dense), layout->view(dense.device()), values);
  return {layout, values};
}

}  // namespace bs
