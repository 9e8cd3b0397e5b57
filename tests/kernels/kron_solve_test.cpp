#include <bs/autograd/binary.h>
#include <bs/autograd/grad_check.h>
#include <bs/autograd/kron_solve.h>
#include <bs/autograd/view.h>
#include <bs/kernels/binary.h>
#include <bs/kernels/eigh.h>
#include <bs/kernels/inverse.h>
#include <bs/tests/support/devices.h>
#include <bs/tests/support/op_case.h>
#include <doctest/doctest.h>

#include <cmath>
#include <limits>

using namespace bs;
using namespace bs::test;

namespace {

/// Diagonally heavy, so that systems are well conditioned; with `symmetric`, positive definite.
Reference heavy(int64_t n, uint64_t seed, bool symmetric = false) {
  Reference a = random_reference({n, n}, seed);
  for (int64_t i = 0; i < n; ++i)
    for (int64_t j = 0; j < n; ++j) {
      if (symmetric && j > i) a.at({i, j}) = a.at({j, i});
      if (i == j) a.at({i, i}) = static_cast<double>(n) + std::abs(a.at({i, i}));
    }
  return a;
}

/// The dense product of factors, slowest first.
Reference dense_of(const std::vector<Reference>& factors) {
  Reference k({1, 1});
  k[0] = 1;
  for (const Reference& f : factors) {
    const int64_t m = k.shape[0], n = f.shape[0];
    Reference next({m * n, m * n});
    for (int64_t i = 0; i < m * n; ++i)
      for (int64_t j = 0; j < m * n; ++j)
        next.at({i, j}) = k.at({i / n, j / n}) * f.at({i % n, j % n});
    k = next;
  }
  return k;
}

/// x with x k = b by Gauss-Jordan elimination, and the determinant.
struct Eliminated {
  Reference x;
  double sign = 1, log_abs_det = 0;
};
Eliminated eliminate(const Reference& k, const Reference& b) {
  const int64_t n = k.shape[0], rows = b.shape[0];
  Reference left = k;  // columns are combined, which keeps x k = b
  Eliminated e{b};
  for (int64_t p = 0; p < n; ++p) {
    int64_t best = p;
    for (int64_t c = p; c < n; ++c)
      if (std::abs(left.at({p, c})) > std::abs(left.at({p, best}))) best = c;
    if (best != p) e.sign = -e.sign;
    for (int64_t r = 0; r < n; ++r) std::swap(left.at({r, p}), left.at({r, best}));
    for (int64_t r = 0; r < rows; ++r) std::swap(e.x.at({r, p}), e.x.at({r, best}));
    const double pivot = left.at({p, p});
    if (pivot < 0) e.sign = -e.sign;
    e.log_abs_det += std::log(std::abs(pivot));
    for (int64_t r = 0; r < n; ++r) left.at({r, p}) /= pivot;
    for (int64_t r = 0; r < rows; ++r) e.x.at({r, p}) /= pivot;
    for (int64_t c = 0; c < n; ++c) {
      const double times = c == p ? 0 : left.at({p, c});
      for (int64_t r = 0; r < n; ++r) left.at({r, c}) -= times * left.at({r, p});
      for (int64_t r = 0; r < rows; ++r) e.x.at({r, c}) -= times * e.x.at({r, p});
    }
  }
  return e;
}

Reference transposed(const Reference& a) {
  Reference t(a.shape);
  for (int64_t i = 0; i < a.shape[0]; ++i)
    for (int64_t j = 0; j < a.shape[1]; ++j) t.at({i, j}) = a.at({j, i});
  return t;
}

std::vector<Tensor> tensors_of(const std::vector<Reference>& all, DType dtype) {
  std::vector<Tensor> tensors;
  for (const Reference& r : all) tensors.push_back(r.tensor(dtype, test_device()));
  return tensors;
}

Tensor number(double value, DType dtype = f64) {
  Reference r;
  r[0] = value;
  return r.tensor(dtype, test_device());
}

const std::vector<std::vector<int64_t>>& extents_list() {
  static const std::vector<std::vector<int64_t>> all = {{2, 3, 4}, {4, 3, 2}, {5},         {1},
                                                        {1, 6, 1}, {7, 9},    {3, 1, 2, 5}};
  return all;
}

std::vector<Reference> factors_of(const std::vector<int64_t>& extents, bool symmetric) {
  std::vector<Reference> all;
  for (size_t i = 0; i < extents.size(); ++i)
    all.push_back(heavy(extents[i], 10 * extents.size() + i, symmetric));
  return all;
}

Reference dense_of(const std::vector<Reference>& factors, KronOrder order) {
  if (order == KronOrder::first_slowest) return dense_of(factors);
  return dense_of(std::vector<Reference>(factors.rbegin(), factors.rend()));
}

/// A symmetric positive definite factor of any square leaf.
Variable definite(const Variable& a) {
  Reference heavy({a.size(0), a.size(0)});
  for (int64_t i = 0; i < a.size(0); ++i) heavy.at({i, i}) = 4;
  return add(add(a, transpose(a, 0, 1)), Variable(heavy.tensor(f64, test_device())));
}

KronEigh decomposed(const std::vector<Variable>& factors, KronOrder order) {
  std::vector<Tensor> data;
  for (const Variable& f : factors) data.push_back(f.data());
  return kron_eigh(data, order);
}

}  // namespace

TEST_CASE("inverse: LU with pivots, and determinants") {
  for (const int64_t n : {1, 2, 3, 17, 64}) {
    CAPTURE(n);
    Reference a = random_reference({n, n}, static_cast<uint64_t>(n));
    a[0] = 0.25 * static_cast<double>(n == 1);  // no pivot without an exchange of rows
    Reference unit({n, n});
    for (int64_t i = 0; i < n; ++i) unit.at({i, i}) = 1;
    const Eliminated expected = eliminate(a, unit);
    const Inverse found = inverse(a.tensor(f64, test_device()));
    check_close("inverse", Reference::of(found.matrix), expected.x, 1e-9);
    CHECK(found.sign.item() == expected.sign);
    CHECK(found.log_abs_det.item() == doctest::Approx(expected.log_abs_det).epsilon(1e-10));
  }
  const Tensor batch = random_reference({2, 0, 3, 3}, 1).tensor(f32, test_device());
  CHECK(inverse(batch).matrix.shape() == Shape{2, 0, 3, 3});
  CHECK(inverse(batch).sign.shape() == Shape{2, 0});
}

TEST_CASE("inverse and eigh name what they cannot take") {
  const auto tensor = [](const Shape& shape) {
    return Reference(shape).tensor(f64, test_device());
  };
  CHECK_THROWS_WITH_AS(inverse(tensor({2, 3, 3})),
                       "inverse: matrix 0 of 2 is singular: pivot 0 of 3 is 0", Error);
  CHECK_THROWS_WITH_AS(inverse(tensor({2, 3})),
                       "inverse: [2, 3] is no square matrix, nor a batch of them", Error);
  CHECK_THROWS_AS(inverse(tensor({0, 0})), Error);
  CHECK_THROWS_AS(inverse(Reference({2, 2}).tensor(bf16, test_device())), Error);
  CHECK_THROWS_WITH_AS(eigh(tensor({4})), "eigh: [4] is no square matrix, nor a batch of them",
                       Error);
  Reference bad({2, 2});
  bad.at({1, 0}) = std::numeric_limits<double>::quiet_NaN();
  CHECK_THROWS_WITH_AS(eigh(bad.tensor(f64, test_device())),
                       "eigh: element [1, 0] of matrix 0 is nan", Error);
}

TEST_CASE("inverse: a matrix with a NaN gives NaN, its neighbours what they are") {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  for (int64_t at = 0; at < 9; ++at) {
    CAPTURE(at);
    Reference a({3, 3, 3});
    for (int64_t m = 0; m < 3; ++m)
      for (int64_t i = 0; i < 3; ++i) a.at({m, i, i}) = 2;
    a[static_cast<size_t>(9 + at)] = nan;
    for (int64_t i = 0; i < 2; ++i) a.at({1, 2, i}) = at == 6 + i ? nan : 0;  // else singular
    const Inverse found = inverse(a.tensor(f64, test_device()));
    const Reference matrix = Reference::of(found.matrix), sign = Reference::of(found.sign),
                    log = Reference::of(found.log_abs_det);
    for (int64_t m = 0; m < 3; ++m) {
      for (int64_t i = 0; i < 3; ++i)
        for (int64_t j = 0; j < 3; ++j) {
          if (m == 1) CHECK(std::isnan(matrix.at({m, i, j})));
          if (m != 1) CHECK(matrix.at({m, i, j}) == (i == j ? 0.5 : 0));
        }
      CHECK(std::isnan(sign[static_cast<size_t>(m)]) == (m == 1));
      CHECK(std::isnan(log[static_cast<size_t>(m)]) == (m == 1));
    }
  }
  Reference infinite({2, 2});  // as torch.linalg.inv has it
  infinite.at({0, 0}) = std::numeric_limits<double>::infinity();
  infinite.at({1, 1}) = 1;
  CHECK(Reference::of(inverse(infinite.tensor(f64, test_device())).matrix).values ==
        std::vector<double>{0, 0, 0, 1});
}

TEST_CASE("kron_solve: a factor with a NaN makes all of x NaN, as in torch.linalg.solve") {
  Reference bad({2, 2});
  bad.at({0, 1}) = std::numeric_limits<double>::quiet_NaN();
  const Tensor good = heavy(3, 1).tensor(f64, test_device());
  for (const double diagonal : {0.0, 1.0}) {
    bad.at({0, 0}) = bad.at({1, 1}) = diagonal;
    const std::vector<Variable> factors = {Variable(good),
                                           Variable(bad.tensor(f64, test_device()))};
    const Tensor b = random_reference({2, 6}, 2).tensor(f64, test_device());
    for (const double v : Reference::of(kron_solve(Variable(b), factors).data()).values)
      CHECK(std::isnan(v));
    CHECK(std::isnan(kron_logdet(factors).data().item()));
  }
}

TEST_CASE("eigh: reads the lower triangle, orthonormal columns give the matrix back") {
  for (const int64_t n : {1, 2, 5, 33}) {
    CAPTURE(n);
    Reference a = random_reference({n, n}, static_cast<uint64_t>(n));
    const Eigh found = eigh(a.tensor(f64, test_device()));
    const Reference values = Reference::of(found.values), v = Reference::of(found.vectors);
    Reference back({n, n}), unit({n, n}), product({n, n});
    for (int64_t i = 0; i < n; ++i) unit.at({i, i}) = 1;
    for (int64_t i = 0; i < n; ++i)
      for (int64_t j = 0; j < n; ++j) {
        if (j > i) a.at({i, j}) = a.at({j, i});
        for (int64_t k = 0; k < n; ++k) {
          back.at({i, j}) += v.at({i, k}) * values[static_cast<size_t>(k)] * v.at({j, k});
          product.at({i, j}) += v.at({k, i}) * v.at({k, j});
        }
      }
    check_close("eigh", back, a, 1e-12 * static_cast<double>(n));
    check_close("eigh's columns", product, unit, 1e-13 * static_cast<double>(n));
    for (size_t i = 1; i < values.values.size(); ++i) CHECK(values[i - 1] <= values[i]);
  }
}

TEST_CASE("kron_solve and kron_logdet: as the dense system, in both orders") {
  for (const std::vector<int64_t>& extents : extents_list()) {
    const std::vector<Reference> factors = factors_of(extents, false);
    for (const KronOrder order : {KronOrder::first_fastest, KronOrder::first_slowest})
      for (const bool turned : {false, true}) {
        const Reference k = dense_of(factors, order);
        const Reference b = random_reference({3, k.shape[0]}, 7);
        const Eliminated expected = eliminate(turned ? transposed(k) : k, b);
        for (const DType dtype : {f64, f32}) {
          const std::vector<Tensor> w = tensors_of(factors, dtype);
          const double precision = dtype == f64 ? 1e-13 : 1e-5;
          const Tensor x =
              kron_solve(b.tensor(dtype, test_device()), w, {.order = order, .transposed = turned});
          check_close("kron_solve", Reference::of(x), expected.x, precision);
          const KronInverse inverse = kron_inverse(w);
          CHECK(inverse.sign.item() == expected.sign);
          CHECK(inverse.log_abs_det.item() ==
                doctest::Approx(expected.log_abs_det).epsilon(10 * precision));
        }
      }
  }
}

TEST_CASE("kron_solve: batched factors and an empty batch") {
  const std::vector<Reference> first = {heavy(2, 1), heavy(3, 2)},
                               second = {heavy(2, 3), heavy(3, 4)};
  std::vector<Tensor> both;
  for (size_t i = 0; i < 2; ++i) {
    Reference pair({2, first[i].shape[0], first[i].shape[0]});
    std::copy(first[i].values.begin(), first[i].values.end(), pair.values.begin());
    std::copy(second[i].values.begin(), second[i].values.end(),
              pair.values.begin() + static_cast<std::ptrdiff_t>(first[i].values.size()));
    both.push_back(pair.tensor(f64, test_device()));
  }
  const Reference b = random_reference({2, 4, 6}, 5);
  const Tensor tensor = b.tensor(f64, test_device());
  const Tensor x = kron_solve(tensor, both);
  for (int g = 0; g < 2; ++g) {
    const Tensor alone = kron_solve(tensor.select(0, g), tensors_of(g == 0 ? first : second, f64));
    check_close("kron_solve of groups", Reference::of(x.select(0, g)), Reference::of(alone), 1e-14);
  }
  CHECK(kron_inverse(both).log_abs_det.shape() == Shape{2});
  CHECK(kron_solve(tensor.slice(1, 0, 0), both).shape() == Shape{2, 0, 6});
}

TEST_CASE("kron_shifted_solve and kron_shifted_logdet: as the dense system, in both orders") {
  for (const std::vector<int64_t>& extents : extents_list()) {
    const std::vector<Reference> factors = factors_of(extents, true);
    for (const KronOrder order : {KronOrder::first_fastest, KronOrder::first_slowest}) {
      Reference k = dense_of(factors, order);
      for (int64_t i = 0; i < k.shape[0]; ++i) k.at({i, i}) += 0.75;
      const Reference b = random_reference({2, k.shape[0]}, 8);
      const Eliminated expected = eliminate(k, b);
      for (const DType dtype : {f64, f32}) {
        const KronEigh eigh = kron_eigh(tensors_of(factors, dtype), order);
        const double precision = dtype == f64 ? 1e-13 : 1e-5;
        const Tensor shift = number(0.75, dtype);
        const Tensor x = kron_shifted_solve(b.tensor(dtype, test_device()), eigh, shift);
        check_close("kron_shifted_solve", Reference::of(x), expected.x, precision);
        CHECK(kron_shifted_logdet(eigh, shift).item() ==
              doctest::Approx(expected.log_abs_det).epsilon(10 * precision));
      }
    }
  }
}

TEST_CASE("kron_shifted_solve: a Gaussian process on a grid") {
  const Tensor y = random_reference({2, 12}, 1).tensor(f64, test_device());
  const Tensor a = heavy(4, 2, true).tensor(f64, test_device());
  const Tensor b = heavy(3, 3, true).tensor(f64, test_device());
  const Tensor noise = number(0.1);
  // y [rows, 12]: values on a grid of 4 x 3 points; a [4, 4] and b [3, 3]: covariances of its axes.
  const KronEigh eigh = kron_eigh({b, a});                  // b is the axis that changes fastest
  const Tensor alpha = kron_shifted_solve(y, eigh, noise);  // y (a kron b + noise I)^-1
  const Tensor penalty = kron_shifted_logdet(eigh, noise);  // log det (a kron b + noise I)
  const Tensor back = add(kron_matmul(alpha, {b, a}), mul(alpha, noise));
  check_close("the system", Reference::of(back), Reference::of(y), 1e-13);
  CHECK(penalty.item() > 0);
}

TEST_CASE("gradcheck: systems with a Kronecker product") {
  const auto leaf = [](const Shape& shape, uint64_t seed) {
    return Variable(random_reference(shape, seed).tensor(f64, test_device()), true);
  };
  const auto square = [](int64_t n, uint64_t seed) {
    return Variable(heavy(n, seed).tensor(f64, test_device()), true);
  };
  for (const KronOrder order : {KronOrder::first_fastest, KronOrder::first_slowest}) {
    for (const bool turned : {false, true})
      gradcheck(
          [&](const std::vector<Variable>& v) {
            return kron_solve(v[0], {v[1], v[2]}, {.order = order, .transposed = turned});
          },
          {leaf({2, 6}, 1), square(2, 2), square(3, 3)});
    const Variable shift(number(0.5), true);
    gradcheck(
        [&](const std::vector<Variable>& v) {
          const std::vector<Variable> w = {definite(v[1]), definite(v[2]), definite(v[3])};
          return kron_shifted_solve(v[0], w, v[4], decomposed(w, order));
        },
        {leaf({2, 12}, 1), leaf({2, 2}, 2), leaf({3, 3}, 3), leaf({2, 2}, 4), shift});
    gradcheck(
        [&](const std::vector<Variable>& v) {
          const std::vector<Variable> w = {definite(v[0]), definite(v[1]), definite(v[2])};
          return kron_shifted_logdet(w, v[3], decomposed(w, order));
        },
        {leaf({2, 2}, 2), leaf({3, 3}, 3), leaf({4, 4}, 4), shift});
  }
  gradcheck([](const std::vector<Variable>& v) { return kron_logdet(v); },
            {square(2, 2), square(3, 3), square(1, 4)});
}

TEST_CASE("kron_solve names what it cannot take") {
  const auto tensor = [](const Shape& shape) {
    return Reference(shape).tensor(f64, test_device());
  };
  CHECK_THROWS_WITH_AS(kron_inverse({}), "kron_inverse: no factors", Error);
  CHECK_THROWS_WITH_AS(kron_inverse({tensor({2, 2}), tensor({2, 3})}),
                       "kron_inverse: factor 1 is [2, 3]; all [n, n], or all [groups, n, n], are "
                       "expected",
                       Error);
  CHECK_THROWS_WITH_AS(kron_solve(tensor({2, 5}), {heavy(2, 1).tensor(f64, test_device())}),
                       "kron_solve: b [2, 5] for factors whose rows have 2 elements", Error);
  const Tensor two = heavy(2, 1).tensor(f64, test_device());
  const char* singular = "kron_solve: matrix 0 of 1 of factor 1 is singular: pivot 0 of 3 is 0";
  CHECK_THROWS_WITH_AS(kron_solve(tensor({2, 6}), {two, tensor({3, 3})}), singular, Error);
  CHECK_THROWS_WITH_AS(
      kron_solve(Variable(tensor({2, 6})), {Variable(two), Variable(tensor({3, 3}))}), singular,
      Error);
  CHECK_THROWS_WITH_AS(kron_logdet({Variable(tensor({2, 2}))}),
                       "kron_logdet: matrix 0 of 1 of factor 0 is singular: pivot 0 of 2 is 0",
                       Error);
  CHECK_THROWS_WITH_AS(kron_inverse({two, tensor({3, 3})}),
                       "kron_inverse: matrix 0 of 1 of factor 1 is singular: pivot 0 of 3 is 0",
                       Error);
  CHECK_THROWS_WITH_AS(kron_solve(Variable(tensor({2, 5})), {Variable(two)}),
                       "kron_solve: b [2, 5] for factors whose rows have 2 elements", Error);
  CHECK_THROWS_WITH_AS(kron_solve(Reference({1, 2}).tensor(f32, test_device()), {two}),
                       "kron_solve: dtypes f32 and f64 differ", Error);
  const Tensor half = Reference({2, 2}).tensor(f16, test_device());
  CHECK_THROWS_WITH_AS(kron_solve(half, {half}),
                       "kron_solve: dtype f16 is not supported; expected f32 or f64", Error);
  const Tensor groups = Reference({3, 2, 2}).tensor(f64, test_device());
  CHECK_THROWS_WITH_AS(kron_solve(tensor({2, 2}), {groups}),
                       "kron_solve: b [2, 2] for factors of 3 groups", Error);
  const Tensor huge = tensor({1, 1}).expand({65536, 65536});
  CHECK_THROWS_WITH_AS(kron_solve(tensor({2, 0}), {huge, huge, huge, huge}),
                       "kron_solve: with factor 3, [65536, 65536], rows have more elements than 64 "
                       "bits count",
                       Error);
  CHECK_THROWS_WITH_AS(
      kron_solve_backward(tensor({1, 3}), {two}, kron_inverse({two}), tensor({1, 3})),
      "kron_solve_backward: x [1, 3] for factors whose rows have 2 elements", Error);
  Reference bad({2, 2});
  bad.at({1, 0}) = std::numeric_limits<double>::quiet_NaN();
  CHECK_THROWS_WITH_AS(kron_eigh({two, bad.tensor(f64, test_device())}),
                       "kron_eigh: element [1, 0] of matrix 0 of factor 1 is nan", Error);
  const KronEigh eigh = kron_eigh({heavy(2, 1, true).tensor(f64, test_device())});
  CHECK_THROWS_WITH_AS(kron_shifted_solve(tensor({1, 2}), eigh, tensor({2})),
                       "kron_shifted_solve: shift [2] is not one number", Error);
  CHECK_THROWS_AS(kron_shifted_solve(tensor({1, 3}), eigh, number(1)), Error);
  CHECK_THROWS_WITH_AS(kron_shifted_solve_backward(tensor({1, 2}), {tensor({3, 3})}, eigh,
                                                   number(1), tensor({1, 2})),
                       "kron_shifted_solve_backward: factor 0 is [3, 3], its eigenvectors [2, 2]",
                       Error);
  CHECK_THROWS_AS(kron_shifted_logdet({}, number(1)), Error);
  CHECK_THROWS_AS(kron_eigh({tensor({2, 3, 3})}), Error);
}
