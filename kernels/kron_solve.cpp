#include <bs/kernels/kron_solve.h>

#include <bs/kernels/binary.h>
#include <bs/kernels/copy.h>
#include <bs/kernels/eigh.h>
#include <bs/kernels/inverse.h>
#include <bs/kernels/matmul.h>
#include <bs/kernels/reduce.h>
#include <bs/kernels/unary.h>

#include <algorithm>

namespace bs {

namespace {

KronOptions product_options(const KronSolveOptions& options, bool turned) {
  return {.order = options.order, .transposed = options.transposed != turned};
}

/// Throws unless all are square matrices of one rank, count, dtype and device.
void check_square(const char* op, const std::vector<Tensor>& factors) {
  BS_CHECK(!factors.empty(), "{}: no factors", op);
  const Tensor& first = factors.front();
  for (size_t i = 0; i < factors.size(); ++i) {
    const Tensor& f = factors[i];
    check_same_device(op, first, f);
    check_same_dtype(op, first, f);
    const bool matrix = f.rank() == 2 || f.rank() == 3;
    BS_CHECK(matrix && f.rank() == first.rank() && f.size(-1) == f.size(-2) && f.size(-1) > 0,
             "{}: factor {} is {}; all [n, n], or all [groups, n, n], are expected", op, i,
             f.shape());
    BS_CHECK(f.rank() == 2 || f.size(0) == first.size(0),
             "{}: factor {} has {} groups, the first {}", op, i, f.size(0), first.size(0));
  }
}

/// Elements of a row.
int64_t width_of(const char* op, const std::vector<Tensor>& factors) {
  int64_t width = 1;
  for (size_t i = 0; i < factors.size(); ++i)
    BS_CHECK(!__builtin_mul_overflow(width, factors[i].size(-1), &width),
             "{}: with factor {}, {}, rows have more elements than 64 bits count", op, i,
             factors[i].shape());
  return width;
}

/// Throws unless `rows`, an operand called `name`, are rows of the product of square factors.
void check_rows(const char* op, const char* name, const Tensor& rows,
                const std::vector<Tensor>& factors) {
  const Tensor& first = factors.front();
  check_same_device(op, rows, first);
  check_same_dtype(op, rows, first);
  const int64_t width = width_of(op, factors);
  BS_CHECK(rows.rank() >= 1 && rows.size(-1) == width,
           "{}: {} {} for factors whose rows have {} elements", op, name, rows.shape(), width);
  BS_CHECK(first.rank() == 2 || (rows.rank() >= 2 && rows.size(0) == first.size(0)),
           "{}: {} {} for factors of {} groups", op, name, rows.shape(), first.size(0));
}

std::string of_factor(size_t i) { return " of factor " + std::to_string(i); }

/// Throws unless it is what kron_eigh returned.
void check_decomposition(const char* op, const KronEigh& eigh) {
  BS_CHECK(eigh.eigenvalues.defined(), "{}: the decomposition is empty; see kron_eigh", op);
  check_square(op, eigh.vectors);
  BS_CHECK(eigh.values.size() == eigh.vectors.size(),
           "{}: eigenvalues of {} factors, vectors of {}", op, eigh.values.size(),
           eigh.vectors.size());
  for (size_t i = 0; i < eigh.values.size(); ++i) {
    const Tensor &values = eigh.values[i], &vectors = eigh.vectors[i];
    BS_CHECK(vectors.rank() == 2 && values.shape() == Shape{vectors.size(0)},
             "{}: eigenvalues {} and vectors {} of factor {}", op, values.shape(), vectors.shape(),
             i);
    for (const Tensor* t : {&values, &vectors}) {
      check_same_dtype(op, eigh.eigenvalues, *t);
      check_same_device(op, eigh.eigenvalues, *t);
    }
  }
  BS_CHECK(eigh.eigenvalues.shape() == Shape{width_of(op, eigh.vectors)},
           "{}: eigenvalues {} of factors whose rows have {} elements", op,
           eigh.eigenvalues.shape(), width_of(op, eigh.vectors));
}

void check_shift(const char* op, const KronEigh& eigh, const Tensor& shift) {
  check_decomposition(op, eigh);
  check_same_device(op, eigh.eigenvalues, shift);
  check_same_dtype(op, eigh.eigenvalues, shift);
  BS_CHECK(shift.numel() == 1, "{}: shift {} is not one number", op, shift.shape());
}

Tensor shifted(const KronEigh& eigh, const Tensor& shift) {
  return add(eigh.eigenvalues, shift.view({}));
}

Tensor symmetric(const Tensor& a) { return mul(add(a, a.transpose(0, 1)), 0.5); }

/// Gradients of the factors of x K at (x, -db), which are those of the solution x of x K = b.
std::vector<Tensor> factor_gradients(const Tensor& x, const std::vector<Tensor>& factors,
                                     const Tensor& db, const KronOptions& options) {
  return kron_matmul_backward(x, factors, {}, neg(db), options, {.x = false, .bias = false})
      .factors;
}

}  // namespace

KronInverse kron_inverse(const std::vector<Tensor>& factors) {
  return detail::kron_inverse("kron_inverse", factors);
}

KronInverse detail::kron_inverse(const char* op, const std::vector<Tensor>& factors) {
  check_square(op, factors);
  const int64_t width = width_of(op, factors);
  KronInverse result;
  for (size_t i = 0; i < factors.size(); ++i) {
    const Tensor& f = factors[i];
    const Inverse one = inverse(op, of_factor(i), f);
    const int64_t times = width / f.size(-1);
    const Tensor log = mul(one.log_abs_det, static_cast<double>(times));
    const Tensor sign = times % 2 == 0 ? mul(one.sign, one.sign) : one.sign;
    const bool first = result.factors.empty();
    result.sign = first ? sign : mul(result.sign, sign);
    result.log_abs_det = first ? log : add(result.log_abs_det, log);
    result.factors.push_back(one.matrix);
  }
  return result;
}

Tensor kron_solve(const Tensor& b, const KronInverse& inverse, const KronSolveOptions& options) {
  check_square("kron_solve", inverse.factors);
  check_rows("kron_solve", "b", b, inverse.factors);
  return kron_matmul(b, inverse.factors, {}, product_options(options, false));
}

Tensor kron_solve(const Tensor& b, const std::vector<Tensor>& factors,
                  const KronSolveOptions& options) {
  check_square("kron_solve", factors);
  check_rows("kron_solve", "b", b, factors);  // before the work of an inverse
  return kron_solve(b, detail::kron_inverse("kron_solve", factors), options);
}

KronSolveGrads kron_solve_backward(const Tensor& x, const std::vector<Tensor>& factors,
                                   const KronInverse& inverse, const Tensor& dx,
                                   const KronSolveOptions& options) {
  check_square("kron_solve_backward", factors);
  check_square("kron_solve_backward", inverse.factors);
  BS_CHECK(x.shape() == dx.shape(), "kron_solve_backward: x {} and dx {}", x.shape(), dx.shape());
  check_rows("kron_solve_backward", "x", x, factors);
  check_rows("kron_solve_backward", "dx", dx, inverse.factors);
  const Tensor db = kron_matmul(dx, inverse.factors, {}, product_options(options, true));
  return {db, factor_gradients(x, factors, db, product_options(options, false))};
}

std::vector<Tensor> kron_logdet_backward(const KronInverse& inverse, const Tensor& dy) {
  check_square("kron_logdet_backward", inverse.factors);
  BS_CHECK(dy.shape() == inverse.log_abs_det.shape(),
           "kron_logdet_backward: dy {} for determinants {}", dy.shape(),
           inverse.log_abs_det.shape());
  const int64_t width = width_of("kron_logdet_backward", inverse.factors);
  const Tensor each = dy.unsqueeze(-1).unsqueeze(-1);
  std::vector<Tensor> grads;
  for (const Tensor& f : inverse.factors) {
    const int64_t times = width / f.size(-1);
    grads.push_back(mul(mul(f.transpose(-2, -1), static_cast<double>(times)), each));
  }
  return grads;
}

KronEigh kron_eigh(const std::vector<Tensor>& factors, KronOrder order) {
  check_square("kron_eigh", factors);
  BS_CHECK(factors.front().rank() == 2, "kron_eigh: factors of {} groups; one group is expected",
           factors.front().size(0));
  KronEigh result{.order = order, .values = {}, .vectors = {}, .eigenvalues = {}};
  for (size_t i = 0; i < factors.size(); ++i) {
    const Eigh one = detail::eigh("kron_eigh", of_factor(i), factors[i]);
    result.values.push_back(one.values);
    result.vectors.push_back(one.vectors);
    Tensor& all = result.eigenvalues;
    if (!all.defined()) {
      all = one.values;
    } else if (order == KronOrder::first_fastest) {
      all = mul(one.values.unsqueeze(1), all.unsqueeze(0)).view({-1});
    } else {
      all = mul(all.unsqueeze(1), one.values.unsqueeze(0)).view({-1});
    }
  }
  return result;
}

Tensor kron_shifted_solve(const Tensor& b, const KronEigh& eigh, const Tensor& shift) {
  check_shift("kron_shifted_solve", eigh, shift);
  check_same_dtype("kron_shifted_solve", b, shift);
  const int64_t width = eigh.eigenvalues.size(0);
  BS_CHECK(b.rank() >= 1 && b.size(-1) == width,
           "kron_shifted_solve: b {} for factors whose rows have {} elements", b.shape(), width);
  const Tensor turned = kron_matmul(b, eigh.vectors, {}, {.order = eigh.order});
  return kron_matmul(div(turned, shifted(eigh, shift)), eigh.vectors, {},
                     {.order = eigh.order, .transposed = true});
}

Tensor kron_shifted_logdet(const KronEigh& eigh, const Tensor& shift) {
  check_shift("kron_shifted_logdet", eigh, shift);
  return sum(log(shifted(eigh, shift)));
}

KronShiftedGrads kron_shifted_solve_backward(const Tensor& x, const std::vector<Tensor>& factors,
                                             const KronEigh& eigh, const Tensor& shift,
                                             const Tensor& dx) {
  constexpr const char* op = "kron_shifted_solve_backward";
  check_square(op, factors);
  check_shift(op, eigh, shift);
  BS_CHECK(factors.size() == eigh.vectors.size(), "{}: {} factors, a decomposition of {}", op,
           factors.size(), eigh.vectors.size());
  for (size_t i = 0; i < factors.size(); ++i)
    BS_CHECK(factors[i].shape() == eigh.vectors[i].shape(),
             "{}: factor {} is {}, its eigenvectors {}", op, i, factors[i].shape(),
             eigh.vectors[i].shape());
  BS_CHECK(x.shape() == dx.shape(), "{}: x {} and dx {}", op, x.shape(), dx.shape());
  check_rows(op, "x", x, factors);
  check_rows(op, "dx", dx, eigh.vectors);
  KronShiftedGrads grads;
  grads.b = kron_shifted_solve(dx, eigh, shift);
  for (const Tensor& g : factor_gradients(x, factors, grads.b, {.order = eigh.order}))
    grads.factors.push_back(symmetric(g));
  grads.shift = neg(sum(mul(x, grads.b))).view(shift.shape());
  return grads;
}

KronShiftedGrads kron_shifted_logdet_backward(const KronEigh& eigh, const Tensor& shift,
                                              const Tensor& dy) {
  check_shift("kron_shifted_logdet_backward", eigh, shift);
  BS_CHECK(dy.numel() == 1, "kron_shifted_logdet_backward: dy {} is not one number", dy.shape());
  BS_CHECK(eigh.values.size() <= Shape::max_rank, "kron_shifted_logdet_backward: {} factors",
           eigh.values.size());
  const auto count = static_cast<int>(eigh.values.size());
  const auto axis_of = [&](int i) {
    return eigh.order == KronOrder::first_fastest ? count - 1 - i : i;
  };
  Shape extents;  // slowest first
  for (int axis = 0; axis < count; ++axis)
    extents.push_back(eigh.values[static_cast<size_t>(axis_of(axis))].size(0));
  const Tensor weights = div(dy.view({}), shifted(eigh, shift));
  KronShiftedGrads grads;
  grads.shift = sum(weights).view(shift.shape());
  for (int i = 0; i < count; ++i) {
    Tensor c = weights.view(extents);
    for (int j = 0; j < count; ++j) {
      if (j == i) continue;
      Shape along;
      for (int axis = 0; axis < count; ++axis)
        along.push_back(axis == axis_of(j) ? extents[axis] : 1);
      c = sum(mul(c, eigh.values[static_cast<size_t>(j)].view(along)), Dims{axis_of(j)}, true);
    }
    const Tensor& vectors = eigh.vectors[static_cast<size_t>(i)];
    grads.factors.push_back(
        matmul(mul(vectors, c.view({1, extents[axis_of(i)]})), vectors.transpose(0, 1)));
  }
  return grads;
}

}  // namespace bs
