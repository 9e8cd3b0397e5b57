#include <bs/autograd/matmul.h>
#include <bs/kernels/copy.h>
#include <bs/kernels/matmul.h>
#include <bs/kernels/random.h>
#include <bs/lib/random.h>
#include <bs/tests/support/devices.h>
#include <bs/tests/support/op_case.h>
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>

using namespace bs;
using namespace bs::test;

namespace {

/// Number of the matrix of `x` that meets matrix `index` of a result with leading axes `lead`.
int64_t matrix_of(const Shape& x, const Shape& lead, int64_t index) {
  int64_t at = 0;
  int64_t step = 1;
  for (int axis = 1; axis <= lead.rank(); ++axis) {
    const int64_t i = index % lead[-axis];
    index /= lead[-axis];
    if (axis > x.rank() - 2) continue;
    const int64_t extent = x[-axis - 2];
    at += (extent == 1 ? 0 : i) * step;
    step *= extent;
  }
  return at;
}

Reference product(const Reference& a, const Reference& b) {
  Shape shape = broadcast_shapes("reference", a.shape.slice(0, a.shape.rank() - 2),
                                 b.shape.slice(0, b.shape.rank() - 2));
  const Shape lead = shape;
  const int64_t m = a.shape[-2], k = a.shape[-1], n = b.shape[-1];
  shape.push_back(m);
  shape.push_back(n);
  Reference c(shape);
  for (int64_t s = 0; s < lead.product(); ++s) {
    const double* p = a.values.data() + matrix_of(a.shape, lead, s) * m * k;
    const double* q = b.values.data() + matrix_of(b.shape, lead, s) * k * n;
    double* r = c.values.data() + s * m * n;
    for (int64_t i = 0; i < m; ++i)
      for (int64_t l = 0; l < k; ++l)
        for (int64_t j = 0; j < n; ++j) r[i * n + j] += p[i * k + l] * q[l * n + j];
  }
  return c;
}

Reference transposed(const Reference& x) {
  const int64_t m = x.shape[-2], n = x.shape[-1];
  Reference y(x.shape);
  y.shape[-2] = n;
  y.shape[-1] = m;
  for (int64_t s = 0; s * m * n < static_cast<int64_t>(x.values.size()); ++s)
    for (int64_t i = 0; i < m; ++i)
      for (int64_t j = 0; j < n; ++j)
        y[static_cast<size_t>((s * n + j) * m + i)] = x[static_cast<size_t>((s * m + i) * n + j)];
  return y;
}

Tensor on_device(const Reference& x, DType dtype) { return x.tensor(dtype, test_device()); }

}  // namespace

TEST_CASE("matmul") {
  const std::vector<std::vector<Shape>> shapes = {
      {{3, 4}, {4, 5}},          {{1, 1}, {1, 1}},
      {{33, 17}, {17, 65}},      {{2, 3, 4}, {4, 5}},
      {{2, 3, 4}, {2, 4, 5}},    {{3, 4}, {2, 4, 5}},
      {{2, 1, 3, 4}, {3, 4, 2}}, {{2, 3, 5, 4}, {2, 1, 4, 3}},
      {{0, 4}, {4, 5}},          {{3, 0}, {0, 5}},
      {{0, 3, 4}, {4, 5}},       {{1, 40}, {40, 1}},
      {{70, 130}, {130, 1}}};
  for (const auto& pair : shapes)
    check_op({.name = "matmul",
              .inputs = pair,
              .op = [](const Variables& v) { return matmul(v[0], v[1]); },
              .reference = [](const References& in) { return product(in[0], in[1]); }});
}

TEST_CASE("matmul multiplies transposed views as they lie") {
  const Reference a = random_reference({2, 3, 7, 5}, 1);
  const Reference b = random_reference({2, 3, 6, 5}, 2);
  for (const DType dtype : {f64, f32, f16, bf16}) {
    const Tensor p = on_device(a, dtype);
    const Tensor q = on_device(b, dtype);
    const Reference exact_p = Reference::of(p);
    const Reference exact_q = Reference::of(q);
    const auto check = [&](const Tensor& x, const Tensor& y, const Reference& expected) {
      const Reference c = Reference::of(matmul(x, y));
      REQUIRE(c.shape == expected.shape);
      for (size_t i = 0; i < c.values.size(); ++i)
        CHECK(std::abs(c[i] - expected[i]) <= 8 * epsilon(dtype));
    };
    check(p, q.transpose(-1, -2), product(exact_p, transposed(exact_q)));
    check(p.transpose(-1, -2), p, product(transposed(exact_p), exact_p));
    check(p.transpose(-2, -1), transposed(exact_p).tensor(dtype, test_device()).transpose(-1, -2),
          product(transposed(exact_p), exact_p));
    // Leading axes swapped, and a slice whose rows are not neighbours in memory.
    check(p.transpose(0, 1), q.transpose(0, 1).transpose(-1, -2),
          product(Reference::of(p.transpose(0, 1)), transposed(Reference::of(q.transpose(0, 1)))));
    check(p.slice(-2, 1, 7, 2), q.slice(-2, 0, 6, 3).transpose(-1, -2),
          product(Reference::of(p.slice(-2, 1, 7, 2)),
                  transposed(Reference::of(q.slice(-2, 0, 6, 3)))));
    // Neither axis dense, and a matrix repeated along one of its own axes.
    check(p.slice(-1, 0, 5, 2), q.slice(-1, 0, 5, 2).transpose(-1, -2),
          product(Reference::of(p.slice(-1, 0, 5, 2)),
                  transposed(Reference::of(q.slice(-1, 0, 5, 2)))));
    const Tensor repeated = q.slice(-2, 0, 1).expand({2, 3, 4, 5});
    check(p, repeated.transpose(-1, -2), product(exact_p, transposed(Reference::of(repeated))));
  }
}

TEST_CASE("matmul of integers held in floats is exact") {
  Reference a = random_reference({129, 300}, 3, -8, 8);
  Reference b = random_reference({300, 67}, 4, -8, 8);
  for (double& v : a.values) v = std::round(v);
  for (double& v : b.values) v = std::round(v);
  CHECK(Reference::of(matmul(on_device(a, f32), on_device(b, f32))).values == product(a, b).values);
}

TEST_CASE("matmul: large products of f32 are as exact as plain sums") {
  // So large that a GPU may compute them by other means than small ones.
  const Shape stored_a[] = {
      {1, 2050, 2100}, {1, 2100, 2050}, {2, 1100, 1800}, {1, 1000, 1021}, {1, 1510, 1490}};
  const Shape stored_b[] = {
      {1, 2100, 1930}, {1, 1930, 2100}, {1, 1800, 1930}, {1, 1021, 1010}, {1, 1490, 1530}};
  for (int i = 0; i < 5; ++i) {
    Generator generator(static_cast<uint64_t>(i));
    const Tensor p = randn(stored_a[i], f32, test_device(), generator);
    const Tensor q = randn(stored_b[i], f32, test_device(), generator);
    const Tensor a = i == 1 ? p.transpose(1, 2) : p, b = i == 1 ? q.transpose(1, 2) : q;
    const Tensor host_a = contiguous(a).to(Device::cpu()), host_b = contiguous(b).to(Device::cpu());
    const Tensor c = matmul(a, b).to(Device::cpu());
    const int64_t m = a.size(1), k = a.size(2), n = b.size(2);
    double error = 0, plain_error = 0;
    for (int64_t sample = 0; sample < 400; ++sample) {
      const int64_t s = sample % c.size(0), row = sample * 7919 % m, column = sample * 104729 % n;
      const float* x = host_a.data<float>() + (s * m + row) * k;
      const float* y = host_b.data<float>() + column;
      double exact = 0;
      float plain = 0;
      for (int64_t l = 0; l < k; ++l) {
        exact += static_cast<double>(x[l]) * static_cast<double>(y[l * n]);
        plain += x[l] * y[l * n];
      }
      const float* z = c.data<float>() + (s * m + row) * n + column;
      error = std::max(error, std::abs(static_cast<double>(*z) - exact));
      plain_error = std::max(plain_error, std::abs(static_cast<double>(plain) - exact));
    }
    CAPTURE(i);
    CHECK(error <= 2 * plain_error);
  }
}

TEST_CASE("matmul: large batches of 16 bits are exact where sums are") {
  // Small integers, so many that a GPU may compute them by other means than few.
  const int64_t batch = 9, m = 1024, n = 4096, k = 64;
  for (const bool turned : {false, true}) {
    std::mt19937 generator(5);
    const auto integers = [&](const Shape& shape) {
      const Tensor host = Tensor::empty(shape, bf16);
      for (int64_t i = 0; i < host.numel(); ++i)
        host.data<bfloat16>()[i] = static_cast<bfloat16>(static_cast<float>(generator() % 8));
      return host;
    };
    const Tensor p = integers(turned ? Shape{batch, k, m} : Shape{batch, m, k});
    const Tensor q = integers(turned ? Shape{1, n, k} : Shape{1, k, n});
    const auto view = [&](const Tensor& x) { return turned ? x.transpose(1, 2) : x; };
    const Tensor c = matmul(view(p.to(test_device())), view(q.to(test_device())));
    const Tensor x = contiguous(view(p)), y = contiguous(view(q)), z = c.to(Device::cpu());
    for (int64_t sample = 0; sample < 2000; ++sample) {
      const int64_t s = sample % batch, i = sample * 7919 % m, j = sample * 104729 % n;
      float sum = 0;
      for (int64_t l = 0; l < k; ++l)
        sum += static_cast<float>(x.data<bfloat16>()[(s * m + i) * k + l]) *
               static_cast<float>(y.data<bfloat16>()[l * n + j]);
      REQUIRE(static_cast<float>(z.data<bfloat16>()[(s * m + i) * n + j]) ==
              static_cast<float>(static_cast<bfloat16>(sum)));
    }
  }
}

TEST_CASE("matmul of 16 bits sums in f32, an odd depth as well") {
  // A processor may multiply two steps of the depth at a time.
  const int64_t sizes[][3] = {{37, 45, 1}, {8, 32, 3}, {9, 33, 511}, {130, 70, 1031}, {1, 50, 77}};
  for (const auto& [m, n, k] : sizes)
    for (const DType dtype : {f16, bf16})
      for (const bool turn_a : {false, true})
        for (const bool turn_b : {false, true}) {
          const Tensor p =
              on_device(random_reference(turn_a ? Shape{k, m} : Shape{m, k}, 5), dtype);
          const Tensor q =
              on_device(random_reference(turn_b ? Shape{n, k} : Shape{k, n}, 6), dtype);
          const Tensor a = turn_a ? p.transpose(0, 1) : p, b = turn_b ? q.transpose(0, 1) : q;
          Reference x = Reference::of(a), y = Reference::of(b);
          const Reference exact = product(x, y), got = Reference::of(matmul(a, b));
          for (double& v : x.values) v = std::abs(v);
          for (double& v : y.values) v = std::abs(v);
          const Reference size = product(x, y);
          const int64_t depth = k;
          CAPTURE(depth);
          CAPTURE(dtype);
          CAPTURE(turn_a);
          CAPTURE(turn_b);
          size_t wrong = 0;
          for (size_t i = 0; i < exact.values.size(); ++i) {
            // A rounding to f32 a term, and one to the dtype.
            const double of_sum = static_cast<double>(k) * epsilon(f32) / 2 * size[i];
            const double bound = of_sum + epsilon(dtype) / 2 * (std::abs(exact[i]) + of_sum);
            wrong += !(std::abs(got[i] - exact[i]) <= bound);
          }
          CHECK(wrong == 0);
        }
}

TEST_CASE("matmul: what is not finite reaches its row and its column alone") {
  const int64_t m = 21, n = 37, k = 15, row = 19, column = 33;
  for (const DType dtype : {f64, f32, f16, bf16}) {
    Reference a = random_reference({m, k}, 7, .5, 1), b = random_reference({k, n}, 8, .5, 1);
    a.at({row, k - 1}) = -std::numeric_limits<double>::infinity();
    b.at({k - 2, column}) = std::numeric_limits<double>::quiet_NaN();
    const Reference c = Reference::of(matmul(on_device(a, dtype), on_device(b, dtype)));
    for (int64_t i = 0; i < m; ++i)
      for (int64_t j = 0; j < n; ++j) {
        const double x = c.at({i, j});
        CAPTURE(dtype);
        CAPTURE(i);
        CAPTURE(j);
        if (j == column)
          CHECK(std::isnan(x));
        else if (i == row)
          CHECK(x == -std::numeric_limits<double>::infinity());
        else
          CHECK(std::isfinite(x));
      }
  }
}

TEST_CASE("matmul of bf16: subnormal numbers count as they are, or as zero") {
  const int64_t m = 24, n = 40, k = 34;
  constexpr double least = 0x1p-126;
  Reference a = random_reference({m, k}, 9, -64 * least, 64 * least),
            b = random_reference({k, n}, 10);
  for (size_t i = 0; i < a.values.size(); i += 3) a[i] /= 128;
  const Tensor p = on_device(a, bf16), q = on_device(b, bf16);
  const Reference x = Reference::of(p), y = Reference::of(q), c = Reference::of(matmul(p, q));
  for (int64_t i = 0; i < m; ++i)
    for (int64_t j = 0; j < n; ++j) {
      double exact = 0, size = 0, lost = least;  // the sum may become zero at each term
      for (int64_t l = 0; l < k; ++l) {
        const double term = x.at({i, l}) * y.at({l, j});
        exact += term;
        size += std::abs(term);
        lost += std::abs(x.at({i, l})) < least ? std::abs(term) + least : least;
      }
      CHECK(std::abs(c.at({i, j}) - exact) <= lost +
                                                  static_cast<double>(k) * epsilon(f32) / 2 * size +
                                                  epsilon(bf16) / 2 * (std::abs(exact) + lost));
    }
}

TEST_CASE("matmul refuses what it cannot do") {
  const auto x = [](const Shape& shape, DType dtype = f32) { return Tensor::empty(shape, dtype); };
  CHECK_THROWS_WITH_AS(matmul(x({4, 8}), x({9, 3})),
                       "matmul: inner dimensions differ: a [4, 8], b [9, 3] (a.shape[-1]=8, "
                       "b.shape[-2]=9)",
                       Error);
  CHECK_THROWS_WITH_AS(matmul(x({2, 4, 8}), x({3, 8, 3})),
                       "matmul: shapes [2] and [3] do not broadcast (2 against 3)", Error);
  CHECK_THROWS_WITH_AS(matmul(x({8}), x({8, 3})),
                       "matmul: two axes or more are needed: a [8], b [8, 3]", Error);
  CHECK_THROWS_WITH_AS(matmul(x({2, 2}), x({2, 2}, f64)), "matmul: dtypes f32 and f64 differ",
                       Error);
  CHECK_THROWS_WITH_AS(matmul(x({2, 2}, i32), x({2, 2}, i32)),
                       "matmul: dtype i32 is not supported; expected f64, f32, f16 or bf16", Error);
}
