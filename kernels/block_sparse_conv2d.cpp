#include <bs/kernels/block_sparse_conv2d.h>

#include <bs/kernels/block_sparse_convert.h>
#include <bs/kernels/copy.h>
#include <bs/kernels/fill.h>

namespace bs {

namespace {

Conv2dProblem problem_of(const char* op, const Shape& x, const LayoutPtr& layout, Extent2 kernel,
                         const Conv2dOptions& options) {
  BS_CHECK(layout != nullptr && layout->heads() == 1, "{}: a weight is one matrix with a layout",
           op);
  BS_CHECK(options.groups == 1, "{}: {} groups; a layout says which channels see each other", op,
           options.groups);
  BS_CHECK(x.rank() == 4 && kernel.h > 0 && kernel.w > 0 && x[1] % layout->block() == 0 &&
               layout->width() == (Shape{x[1], kernel.h, kernel.w}.product()),
           "{}: x {} and a filter of {}x{} for a weight [{}, {}] with blocks of {}", op, x,
           kernel.h, kernel.w, layout->height(), layout->width(), layout->block());
  return conv2d_problem(op, x, {layout->height(), x[1], kernel.h, kernel.w}, options);
}

void check_pair(const char* op, const Tensor& a, const Tensor& b) {
  check_same_device(op, a, b);
  check_same_dtype(op, a, b);
  if (!is_floating(a.dtype())) detail::unsupported_dtype(op, a.dtype(), "f64, f32, f16 or bf16");
}

Shape values_of(const LayoutPtr& layout) {
  return {layout->nnz(), layout->block(), layout->block()};
}

/// The blocks of a weight as backends take them.
SparseTensor packed(const char* op, const SparseTensor& weight) {
  const Shape expected = values_of(weight.layout);
  BS_CHECK(weight.values.shape() == expected, "{}: values {} for a layout with {}", op,
           weight.values.shape(), expected);
  return {weight.layout, contiguous(weight.values)};
}

void check_dy(const char* op, const Conv2dProblem& d, const Tensor& dy) {
  const Shape y{d.n, d.k, d.p, d.q};
  BS_CHECK(dy.shape() == y, "{}: dy {} for a result {}", op, dy.shape(), y);
}

/// Multiply-adds of the blocks that there are.
Work work_of(const Conv2dProblem& d, const Layout& layout) {
  return {.flops = 2 * d.products() * layout.density()};
}

}  // namespace

LayoutPtr conv2d_layout(const Tensor& mask, int block) {
  BS_CHECK(mask.rank() == 4, "conv2d_layout: mask {} is no [K / block, C / block, R, S]",
           mask.shape());
  const Tensor ordered = contiguous(mask.permute({0, 2, 3, 1}));
  return Layout::from_mask(ordered.view({mask.size(0), mask.size(1) * mask.size(2) * mask.size(3)}),
                           block);
}

Tensor block_sparse_conv2d(const Tensor& x, const SparseTensor& weight, Extent2 kernel,
                           const Conv2dOptions& options, const Tensor& bias) {
  constexpr const char* op = "block_sparse_conv2d";
  const Conv2dProblem d = problem_of(op, x.shape(), weight.layout, kernel, options);
  const SparseTensor w = packed(op, weight);
  check_pair(op, x, w.values);
  if (bias.defined()) {
    check_pair(op, x, bias);
    BS_CHECK(bias.shape() == Shape{d.k}, "{}: bias {} for {} channels of the result", op,
             bias.shape(), d.k);
  }
  Tensor y = empty_image({d.n, d.k, d.p, d.q}, x.dtype(), x.device(), is_channels_last(x));
  if (d.n == 0) return y;
  const Tensor added = bias.defined() ? contiguous(bias) : bias;
  BS_DISPATCH_WORK(x.device(), work_of(d, *w.layout), block_sparse_conv2d, d, x, w, added, y);
  return y;
}

Tensor block_sparse_conv2d_backward_x(const Tensor& dy, const SparseTensor& weight, Extent2 kernel,
                                      const Shape& x_shape, const Conv2dOptions& options) {
  constexpr const char* op = "block_sparse_conv2d_backward_x";
  const Conv2dProblem d = problem_of(op, x_shape, weight.layout, kernel, options);
  const SparseTensor w = packed(op, weight);
  check_pair(op, dy, w.values);
  check_dy(op, d, dy);
  Tensor dx = empty_image(x_shape, dy.dtype(), dy.device(), is_channels_last(dy));
  if (d.n == 0) return dx;
  BS_DISPATCH_WORK(dy.device(), work_of(d, *w.layout), block_sparse_conv2d_backward_x, d, dy, w,
                   dx);
  return dx;
}

Tensor block_sparse_conv2d_backward_w(const Tensor& x, const Tensor& dy, const LayoutPtr& layout,
                                      Extent2 kernel, const Conv2dOptions& options) {
  constexpr const char* op = "block_sparse_conv2d_backward_w";
  const Conv2dProblem d = problem_of(op, x.shape(), layout, kernel, options);
  check_pair(op, x, dy);
  check_dy(op, d, dy);
  if (d.n == 0) return zeros(values_of(layout), x.dtype(), x.device());
  const SparseTensor dweight{layout, Tensor::empty(values_of(layout), x.dtype(), x.device())};
  BS_DISPATCH_WORK(x.device(), work_of(d, *layout), block_sparse_conv2d_backward_w, d, x, dy,
                   dweight);
  return dweight.values;
}

Tensor relayout(const Tensor& values, const LayoutPtr& from, const LayoutPtr& to) {
  BS_CHECK(from && to && from->block() == to->block() && from->heads() == to->heads() &&
               from->rows() == to->rows() && from->cols() == to->cols(),
           "relayout: two layouts of one size are expected");
  const int64_t block = from->block();
  const Shape expected{from->nnz(), block, block};
  BS_CHECK(values.shape() == expected, "relayout: values {} for a layout with {}", values.shape(),
           expected);
  const Device device = values.device();
  Tensor moved = Tensor::empty({to->nnz(), block, block}, values.dtype(), device);
  if (moved.numel() > 0)
    BS_DISPATCH(device, relayout, contiguous(values), from->view(device), to->view(device), moved);
  return moved;
}

}  // namespace bs
