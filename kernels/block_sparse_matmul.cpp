#include <bs/kernels/block_sparse_matmul.h>
#include <bs/kernels/copy.h>
#include <bs/kernels/fill.h>
#include <bs/kernels/math_mode.h>

namespace bs {

namespace {

Tensor op(const Tensor& x, bool transposed) { return transposed ? x.transpose(-2, -1) : x; }

std::string describe(const Tensor& x, bool transposed) {
  return to_string(x.shape()) + (transposed ? " transposed" : "");
}

std::string describe(const Layout& x, bool transposed) {
  return format("{} x {} blocks of {}{}", x.rows(), x.cols(), x.block(),
                transposed ? " transposed" : "");
}

int64_t rows(const Tensor& x, bool transposed) { return x.size(transposed ? -1 : -2); }
int64_t rows(const Layout& x, bool transposed) { return transposed ? x.width() : x.height(); }

/// The layout of a multi-headed matrix tells its dense partner's last axis but two.
void check_dense(const char* name, const char* which, const Tensor& x, const Layout& layout) {
  BS_CHECK(x.rank() >= 2, "{}: {} is {}, not a matrix", name, which, x.shape());
  BS_CHECK(
      layout.heads() == 1 || (x.rank() >= 3 && (x.size(-3) == layout.heads() || x.size(-3) == 1)),
      "{}: {} {} has no axis of {} heads, or 1, before its last two", name, which, x.shape(),
      layout.heads());
}

/// The shape asked of the values of a gradient.
void check_values(const char* name, const Shape& values, const LayoutPtr& layout) {
  BS_CHECK(layout, "{}: no layout", name);
  const Shape blocks{layout->nnz(), layout->block(), layout->block()};
  BS_CHECK(values.rank() >= 3 && values.slice(values.rank() - 3, values.rank()) == blocks,
           "{}: values {} do not fit the layout, which asks for [..., {}, {}, {}]", name, values,
           layout->nnz(), layout->block(), layout->block());
}

/// The depth of op(a) op(b) must be the same in both; either may be a Layout.
template <class A, class B>
void check_inner(const char* name, const A& a, const B& b, Transpose t) {
  BS_CHECK(rows(a, !t.a) == rows(b, t.b),
           "{}: inner dimensions differ: op(a) is {} x {}, op(b) is {} x {} (a {}, b {})", name,
           rows(a, t.a), rows(a, !t.a), rows(b, t.b), rows(b, !t.b), describe(a, t.a),
           describe(b, t.b));
}

/// `x`, or a copy of it, such that one of its last two strides is 1.
Tensor with_unit_stride(const Tensor& x) {
  const bool unit =
      x.strides()[-1] == 1 || x.strides()[-2] == 1 || x.size(-1) == 1 || x.size(-2) == 1;
  return unit ? x : contiguous(x);
}

MatrixStrides matrix_strides(const Tensor& x) {
  // The stride of an axis of one element may be anything; 1 it is.
  return {x.size(-2) == 1 ? 1 : x.strides()[-2], x.size(-1) == 1 ? 1 : x.strides()[-1]};
}

/// Axes before a dense operand's last `inner`.
Shape leading(const Tensor& dense, int inner) {
  return dense.shape().slice(0, dense.rank() - inner);
}
Strides leading_strides(const Tensor& dense, int inner) {
  return dense.strides().slice(0, dense.rank() - inner);
}

/// Strides of the axes `own` over the axes `full`, aligned at the end: 0 where repeated.
Strides repeated(const Shape& own, const Strides& strides, const Shape& full) {
  Strides out = Dims::filled(full.rank(), 0);
  for (int i = 1; i <= own.rank(); ++i)
    if (own[-i] != 1) out[-i] = strides[-i];
  return out;
}

/// The axes of a product: those that the result has, and those that it is summed over. Each has an
/// extent of 1 in the place of the other's.
struct Axes {
  Shape kept, summed;
};

Axes divide(const char* name, const Shape& full, const Shape& result) {
  BS_CHECK(result.rank() <= full.rank() && broadcast_shapes(name, result, full) == full,
           "{}: leading axes {} asked of a product over {}", name, result, full);
  Axes axes{Dims::filled(full.rank(), 1), full};
  for (int i = 1; i <= result.rank(); ++i)
    if (result[-i] == full[-i]) std::swap(axes.kept[-i], axes.summed[-i]);
  return axes;
}

/// Of `batches` matrices of the pattern, each element that is kept meets `depth` others.
Work work_of(const Layout& layout, int64_t batches, int64_t depth) {
  const auto kept = static_cast<double>(layout.nnz()) * layout.block() * layout.block();
  return {.flops = 2 * kept * static_cast<double>(batches) * static_cast<double>(depth),
          .density = layout.density()};
}

/// How a product is computed; see ProductOptions.
struct Manner {
  const BlockSparseEpilogue* epilogue = nullptr;
  bool by_columns = false;  ///< whether the result is the transpose of what the epilogue sees

  Manner() = default;
  explicit Manner(const std::optional<BlockSparseEpilogue>& resolved, bool transposed = false)
      : epilogue(resolved ? &*resolved : nullptr), by_columns(transposed && resolved) {}

  /// There is no result.
  void finish_nothing() const {
    if (epilogue) reduce_nothing(*epilogue);
  }
};

/// The sum of no products: over an axis of extent 0, or of heads where there are none. Only
/// gradients are sums over axes, so there is no epilogue. `x` or its transpose is contiguous.
void fill_nothing(const Tensor& x) { fill(x.is_contiguous() ? x : x.transpose(-2, -1), 0); }

/// c = op(s) b, summed over the leading axes that c lacks.
void multiply(const char* name, const SparseTensor& s, bool transposed, const Tensor& dense,
              const Tensor& c, const Manner& manner = {}) {
  check_sparse(name, s);
  check_same_dtype(name, s.values, dense);
  check_same_device(name, s.values, dense);
  const Layout& layout = *s.layout;
  BS_CHECK(rows(layout, !transposed) == dense.size(-2) && rows(layout, transposed) == c.size(-2) &&
               dense.size(-1) == c.size(-1),
           "{}: {} and {} do not make {}", name, describe(layout, transposed), dense.shape(),
           c.shape());
  if (c.numel() == 0) return manner.finish_nothing();
  const Tensor values = contiguous(s.values);
  const Tensor b = with_unit_stride(dense);
  const bool headed = layout.heads() != 1;

  Shape batch = leading(values, 3);
  Strides of_batch = leading_strides(values, 3);
  if (headed) {
    batch.push_back(layout.heads());
    of_batch.push_back(0);
  }
  const Shape full = broadcast_shapes(name, batch, leading(b, 2));
  const Axes axes = divide(name, full, leading(c, 2));
  if (axes.summed.product() == 0) return fill_nothing(c);
  const Strides of_values = repeated(batch, of_batch, full);
  const Strides of_b = repeated(leading(b, 2), leading_strides(b, 2), full);
  const Strides of_c = repeated(leading(c, 2), leading_strides(c, 2), full);
  Strides of_head = Dims::filled(full.rank(), 0);
  if (headed) of_head[-1] = 1;

  const DsdProblem p{.pattern = &layout,
                     .layout = layout.view(b.device()),
                     .transposed = transposed,
                     .n = c.size(-1),
                     .b = matrix_strides(b),
                     // Of one column, too, an epilogue's C is written by columns where it should.
                     .c = manner.by_columns ? MatrixStrides{1, c.size(-2)} : matrix_strides(c),
                     .batch = {axes.kept, {of_values, of_b, of_c, of_head}},
                     .sum = {axes.summed, {of_values, of_b, of_head}},
                     .epilogue = manner.epilogue,
                     .tf32 = tf32_allowed()};
  BS_DISPATCH_WORK(b.device(), work_of(layout, full.product() / (headed ? layout.heads() : 1), p.n),
                   dsd, values, b, c, p);
}

/// values = the blocks of left right, summed over the leading axes that values lack.
void multiply(const char* name, const Tensor& left, const Tensor& right, const Layout& layout,
              const Tensor& values, const Manner& manner = {}) {
  check_same_dtype(name, left, right);
  check_same_device(name, left, right);
  BS_CHECK(left.size(-1) == right.size(-2) && left.size(-2) == layout.height() &&
               right.size(-1) == layout.width(),
           "{}: {} and {} do not make {}", name, left.shape(), right.shape(),
           describe(layout, false));
  if (values.numel() == 0) return manner.finish_nothing();
  const Tensor a = with_unit_stride(left);
  const Tensor b = with_unit_stride(right);
  const int inner = layout.heads() != 1 ? 3 : 2;
  const auto to_next_head = [&](const Tensor& x) {
    return inner == 3 && x.size(-3) != 1 ? x.strides()[-3] : 0;
  };
  const Shape full = broadcast_shapes(name, leading(a, inner), leading(b, inner));
  const Axes axes = divide(name, full, leading(values, 3));
  if (axes.summed.product() == 0) return fill_nothing(values);
  const Strides of_a = repeated(leading(a, inner), leading_strides(a, inner), full);
  const Strides of_b = repeated(leading(b, inner), leading_strides(b, inner), full);
  const Strides of_values = repeated(leading(values, 3), leading_strides(values, 3), full);

  const SddProblem p{.pattern = &layout,
                     .layout = layout.view(a.device()),
                     .longest_row = layout.max_row(),
                     .k = a.size(-1),
                     .a = matrix_strides(a),
                     .b = matrix_strides(b),
                     .a_head = to_next_head(a),
                     .b_head = to_next_head(b),
                     .batch = {axes.kept, {of_a, of_b, of_values}},
                     .sum = {axes.summed, {of_a, of_b}},
                     .epilogue = manner.epilogue,
                     .tf32 = tf32_allowed()};
  BS_DISPATCH_WORK(a.device(), work_of(layout, full.product(), p.k), sdd, a, b, values, p);
}

/// The leading axes of a product of a sparse and a dense operand.
Shape product_axes(const char* name, const SparseTensor& s, const Tensor& dense) {
  Shape batch = leading(s.values, 3);
  if (s.layout->heads() != 1) batch.push_back(s.layout->heads());
  return broadcast_shapes(name, batch, leading(dense, 2));
}

Tensor dense_result(Shape axes, int64_t m, int64_t n, const Tensor& like) {
  axes.push_back(m);
  axes.push_back(n);
  return Tensor::empty(axes, like.dtype(), like.device());
}

Tensor gradient(const Shape& shape, const Tensor& like) {
  return Tensor::empty(shape, like.dtype(), like.device());
}

/// Memory for the gradient of a dense operand, the product of `s` and `other` being right.
Tensor dense_gradient(const char* name, const Shape& shape, const SparseTensor& s,
                      const Tensor& other) {
  check_sparse(name, s);
  check_dense(name, "the dense operand", other, *s.layout);
  BS_CHECK(shape.rank() >= 2, "{}: a gradient of shape {} is of no matrix", name, shape);
  return gradient(shape, other);
}

}  // namespace

SparseTensor sdd(const Tensor& a, const Tensor& b, const LayoutPtr& layout, Transpose t,
                 const ProductOptions& options) {
  BS_CHECK(layout, "sdd: no layout");
  check_dense("sdd", "a", a, *layout);
  check_dense("sdd", "b", b, *layout);
  check_inner("sdd", a, b, t);
  BS_CHECK(rows(a, t.a) == layout->height() && rows(b, !t.b) == layout->width(),
           "sdd: op(a) op(b) is {} x {}, but the layout of {} is {} x {} (a {}, b {})",
           rows(a, t.a), rows(b, !t.b), describe(*layout, false), layout->height(), layout->width(),
           describe(a, t.a), describe(b, t.b));
  const int inner = layout->heads() != 1 ? 3 : 2;
  Shape shape = broadcast_shapes("sdd", leading(a, inner), leading(b, inner));
  for (int64_t extent : {layout->nnz(), int64_t{layout->block()}, int64_t{layout->block()}})
    shape.push_back(extent);
  const Tensor values = Tensor::empty(shape, a.dtype(), a.device());
  const auto epilogue = resolve_epilogue("sdd", options, values, *layout);
  multiply("sdd", op(a, t.a), op(b, t.b), *layout, values, Manner(epilogue));
  return {layout, values};
}

Tensor dsd(const SparseTensor& s, const Tensor& b, Transpose t, const ProductOptions& options) {
  check_sparse("dsd", s);
  check_dense("dsd", "b", b, *s.layout);
  check_inner("dsd", *s.layout, b, t);
  Tensor c = dense_result(product_axes("dsd", s, b), rows(*s.layout, t.a), rows(b, !t.b), b);
  const auto epilogue = resolve_epilogue("dsd", options, c);
  multiply("dsd", s, t.a, op(b, t.b), c, Manner(epilogue));
  return c;
}

Tensor dds(const Tensor& a, const SparseTensor& s, Transpose t, const ProductOptions& options) {
  check_sparse("dds", s);
  check_dense("dds", "a", a, *s.layout);
  check_inner("dds", a, *s.layout, t);
  Tensor c = dense_result(product_axes("dds", s, a), rows(a, t.a), rows(*s.layout, !t.b), a);
  const auto epilogue = resolve_epilogue("dds", options, c);
  multiply("dds", s, !t.b, op(a, !t.a), op(c, true), Manner(epilogue, true));
  return c;
}

// Every gradient below is one product. With C = op(A) op(B): d op(A) = dC op(B)^T and
// d op(B) = op(A)^T dC. Where the gradient of the operand as stored is the transpose of that, the
// whole line is transposed. Where the sparse factor is on the right, it is brought to the left in
// the same way.

Tensor sdd_backward_a(const SparseTensor& dc, const Tensor& b, const Shape& a, Transpose t) {
  Tensor da = dense_gradient("sdd_backward_a", a, dc, b);
  multiply("sdd_backward_a", dc, false, op(b, !t.b), op(da, t.a));
  return da;
}

Tensor sdd_backward_b(const Tensor& a, const SparseTensor& dc, const Shape& b, Transpose t) {
  Tensor db = dense_gradient("sdd_backward_b", b, dc, a);
  multiply("sdd_backward_b", dc, true, op(a, t.a), op(db, !t.b));
  return db;
}

Tensor dsd_backward_s(const Tensor& dc, const Tensor& b, const LayoutPtr& layout,
                      const Shape& values, Transpose t) {
  check_values("dsd_backward_s", values, layout);
  check_dense("dsd_backward_s", "dc", dc, *layout);
  check_dense("dsd_backward_s", "b", b, *layout);
  Tensor ds = gradient(values, b);
  if (t.a) {
    multiply("dsd_backward_s", op(b, t.b), op(dc, true), *layout, ds);
  } else {
    multiply("dsd_backward_s", dc, op(b, !t.b), *layout, ds);
  }
  return ds;
}

Tensor dsd_backward_b(const SparseTensor& s, const Tensor& dc, const Shape& b, Transpose t) {
  Tensor db = dense_gradient("dsd_backward_b", b, s, dc);
  multiply("dsd_backward_b", s, !t.a, dc, op(db, t.b));
  return db;
}

Tensor dds_backward_a(const Tensor& dc, const SparseTensor& s, const Shape& a, Transpose t) {
  Tensor da = dense_gradient("dds_backward_a", a, s, dc);
  multiply("dds_backward_a", s, t.b, op(dc, true), op(da, !t.a));
  return da;
}

Tensor dds_backward_s(const Tensor& a, const Tensor& dc, const LayoutPtr& layout,
                      const Shape& values, Transpose t) {
  check_values("dds_backward_s", values, layout);
  check_dense("dds_backward_s", "a", a, *layout);
  check_dense("dds_backward_s", "dc", dc, *layout);
  Tensor ds = gradient(values, a);
  if (t.b) {
    multiply("dds_backward_s", op(dc, true), op(a, t.a), *layout, ds);
  } else {
    multiply("dds_backward_s", op(a, !t.a), dc, *layout, ds);
  }
  return ds;
}

}  // namespace bs
