#include <bs/autograd/rope.h>
#include <bs/kernels/copy.h>
#include <bs/tests/support/devices.h>
#include <bs/tests/support/op_case.h>
#include <doctest/doctest.h>

#include <cmath>

using namespace bs;
using namespace bs::test;

namespace {

/// x [batch, heads, sequence, head_dim] with the first `dim` elements of each row turned.
Reference turned(const Reference& x, int64_t dim, int64_t first, bool interleaved, double sign) {
  Reference y = x;
  for (int64_t b = 0; b < x.shape[0]; ++b)
    for (int64_t h = 0; h < x.shape[1]; ++h)
      for (int64_t s = 0; s < x.shape[2]; ++s)
        for (int64_t i = 0; i < dim / 2; ++i) {
          const double angle =
              static_cast<double>(first + s) *
              std::pow(10000.0, -static_cast<double>(2 * i) / static_cast<double>(dim));
          const int64_t p = interleaved ? 2 * i : i, q = interleaved ? 2 * i + 1 : i + dim / 2;
          const double cosine = std::cos(angle), sine = sign * std::sin(angle);
          y.at({b, h, s, p}) = x.at({b, h, s, p}) * cosine - x.at({b, h, s, q}) * sine;
          y.at({b, h, s, q}) = x.at({b, h, s, q}) * cosine + x.at({b, h, s, p}) * sine;
        }
  return y;
}

}  // namespace

TEST_CASE("rope turns pairs of elements by their places") {
  for (const bool interleaved : {false, true})
    for (const bool inverse : {false, true})
      for (const int64_t dim : {2, 6, 16, 32})
        for (const int64_t length : {1, 5})
          check_op(
              {.name = "rope",
               .inputs = {{2, 3, length, dim == 6 ? 16 : 32}},
               .op =
                   [=](const Variables& v) {
                     const Tensor table = rope_table(
                         length, dim, 10000, 3, v[0].dtype() == f64 ? f64 : f32, test_device());
                     return rope(v[0], table, {.interleaved = interleaved, .inverse = inverse});
                   },
               .reference =
                   [=](const References& in) {
                     return turned(in[0], dim, 3, interleaved, inverse ? -1 : 1);
                   }});
}

TEST_CASE("rope takes views, and gives rows that attention takes as they are") {
  const Reference x = random_reference({2, 5, 3, 8}, 1);
  const Tensor view = x.tensor(f32, test_device()).permute({0, 2, 1, 3});
  const Tensor table = rope_table(5, 8, 10000, 0, f32, test_device());
  const Tensor y = rope(view, table);
  CHECK(y.permute({0, 2, 1, 3}).is_contiguous());
  CHECK(same_bits(contiguous(y), contiguous(rope(contiguous(view), table))));
  CHECK(rope(view.slice(2, 0, 0), table.slice(0, 0, 0)).shape() == Shape({2, 3, 0, 8}));
}

TEST_CASE("rope: products depend on distances alone") {
  const Reference q = random_reference({1, 1, 1, 16}, 1), k = random_reference({1, 1, 1, 16}, 2);
  const auto product = [&](int64_t of_q, int64_t of_k) {
    const auto place = [&](const Reference& x, int64_t at) {
      const Tensor table = rope_table(1, 16, 10000, at, f64, test_device());
      return Reference::of(rope(x.tensor(f64, test_device()), table));
    };
    const Reference a = place(q, of_q), b = place(k, of_k);
    double sum = 0;
    for (size_t i = 0; i < 16; ++i) sum += a[i] * b[i];
    return sum;
  };
  CHECK(product(7, 3) == doctest::Approx(product(1004, 1000)).epsilon(1e-9));
}

TEST_CASE("rope refuses what does not fit") {
  const Tensor x = Tensor::empty({1, 1, 4, 8}, f32, test_device());
  CHECK_THROWS_WITH_AS(rope_table(3, 5), "rope_table: 3 places of 5 elements", Error);
  CHECK_THROWS_WITH_AS(rope(x, rope_table(3, 8, 10000, 0, f32, test_device())),
                       "rope: table [3, 2, 4] is not [sequence, 2, pairs] of x [1, 1, 4, 8]",
                       Error);
  CHECK_THROWS_WITH_AS(rope(x, rope_table(4, 8, 10000, 0, f64, test_device())),
                       "rope: a table of f64 for x of f32", Error);
}
