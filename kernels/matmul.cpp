#include <bs/kernels/matmul.h>

#include <bs/kernels/fill.h>
#include <bs/kernels/reduce.h>

namespace bs {

namespace {

Shape leading(const Shape& shape) { return shape.slice(0, shape.rank() - 2); }

/// x seen under leading axes `lead` in place of its own.
Tensor broadcast(const Tensor& x, const Shape& lead) {
  Shape shape = lead;
  shape.push_back(x.size(-2));
  shape.push_back(x.size(-1));
  return x.expand(shape);
}

void check_operands(const Tensor& a, const Tensor& b) {
  check_same_device("matmul", a, b);
  check_same_dtype("matmul", a, b);
  if (!is_floating(a.dtype()))
    detail::unsupported_dtype("matmul", a.dtype(), "f64, f32, f16 or bf16");
  BS_CHECK(a.rank() >= 2 && b.rank() >= 2, "matmul: two axes or more are needed: a {}, b {}",
           a.shape(), b.shape());
  BS_CHECK(a.size(-1) == b.size(-2),
           "matmul: inner dimensions differ: a {}, b {} (a.shape[-1]={}, b.shape[-2]={})",
           a.shape(), b.shape(), a.size(-1), b.size(-2));
}

/// x [..., rows, columns] as one matrix of all its rows; rank 2 already, or undefined where strides
/// do not allow it.
Tensor rows_of(const Tensor& x) {
  const Shape shape{leading(x.shape()).product() * x.size(-2), x.size(-1)};
  return x.can_view(shape) ? x.view(shape) : Tensor();
}

}  // namespace

Tensor matmul(const Tensor& a, const Tensor& b) {
  check_operands(a, b);
  const Shape lead = broadcast_shapes("matmul", leading(a.shape()), leading(b.shape()));
  Shape shape = lead;
  shape.push_back(a.size(-2));
  shape.push_back(b.size(-1));
  if (shape.product() == 0 || a.size(-1) == 0) return zeros(shape, a.dtype(), a.device());
  Tensor c = Tensor::empty(shape, a.dtype(), a.device());
  if (const Tensor rows = rows_of(a); b.rank() == 2 && rows.defined()) {
    BS_DISPATCH_WORK(c.device(), Work::product(c, a.size(-1)), matmul, rows, b, rows_of(c));
  } else {
    BS_DISPATCH_WORK(c.device(), Work::product(c, a.size(-1)), matmul, broadcast(a, lead),
                     broadcast(b, lead), c);
  }
  return c;
}

Tensor matmul_backward_a(const Shape& a_shape, const Tensor& b, const Tensor& dc) {
  return sum_to(matmul(dc, b.transpose(-2, -1)), a_shape);
}

Tensor matmul_backward_b(const Tensor& a, const Shape& b_shape, const Tensor& dc) {
  // A matrix that met all rows of a sums over all of them: one product instead of a batch.
  if (b_shape.rank() == 2) {
    const Tensor rows = rows_of(a);
    const Tensor gradients = rows_of(dc);
    if (rows.defined() && gradients.defined()) return matmul(rows.transpose(0, 1), gradients);
  }
  return sum_to(matmul(a.transpose(-2, -1), dc), b_shape);
}

}  // namespace bs
