#include <bs/autograd/where.h>
#include <bs/kernels/where.h>
#include <bs/tests/support/devices.h>
#include <bs/tests/support/op_case.h>
#include <doctest/doctest.h>

using namespace bs;
using namespace bs::test;

namespace {
/// Every third element is chosen from the first operand.
Tensor pattern(const Shape& shape) {
  Reference r(shape);
  for (size_t i = 0; i < r.values.size(); ++i) r[i] = i % 3 == 0 ? 1 : 0;
  return r.tensor(boolean, test_device());
}
}  // namespace

TEST_CASE("where") {
  const auto choose = [](const References& in) {
    Reference y = in[0];
    for (size_t i = 0; i < y.values.size(); ++i)
      if (i % 3 != 0) y[i] = in[1][i % in[1].values.size()];
    return y;
  };
  for (const Shape& shape : {Shape{4, 5}, Shape{0}, Shape{1}, Shape{3, 1030}})
    check_op({.name = "where",
              .inputs = {shape, shape},
              .op = [&](const Variables& v) { return where(pattern(shape), v[0], v[1]); },
              .reference = choose});
  check_op({.name = "where, broadcast",
            .inputs = {{4, 6}, {6}},
            .op =
                [&](const Variables& v) {
                  return where(pattern({4, 6}), v[0], v[1]);
                },
            .reference = choose});
}

TEST_CASE("where with numbers") {
  const Shape shape{2, 7};
  check_op({.name = "where(c, x, -1)",
            .inputs = {shape},
            .op = [&](const Variables& v) { return where(pattern(shape), v[0], -1); },
            .reference =
                [](const References& in) {
                  Reference y = in[0];
                  for (size_t i = 0; i < y.values.size(); ++i)
                    if (i % 3 != 0) y[i] = -1;
                  return y;
                }});
  check_op({.name = "where(c, 0.5, x)",
            .inputs = {shape},
            .op = [&](const Variables& v) { return where(pattern(shape), 0.5, v[0]); },
            .reference =
                [](const References& in) {
                  Reference y = in[0];
                  for (size_t i = 0; i < y.values.size(); i += 3) y[i] = 0.5;
                  return y;
                }});
}

TEST_CASE("where promotes, and takes conditions of any dtype") {
  const Tensor c = Tensor::from<int32_t>({0, 2, -1}).to(test_device());
  const Tensor a = Tensor::from<uint8_t>({1, 2, 3}).to(test_device());
  const Tensor b = Tensor::from<double>({10, 20, 30}).to(test_device());
  const Tensor y = where(c, a, b);
  CHECK(y.dtype() == f64);
  CHECK(Reference::of(y).values == std::vector<double>{10, 2, 3});
  CHECK(where(c, a, 5).dtype() == u8);
  CHECK(Reference::of(where(c, a, 5)).values == std::vector<double>{5, 2, 3});
}

TEST_CASE("where refuses shapes that do not broadcast, and numbers that wrap") {
  const Tensor x = Tensor::empty({2}, f32);
  CHECK_THROWS_WITH_AS(where(Tensor::empty({3}, boolean), x, x),
                       "where: shapes [3] and [2] do not broadcast (3 against 2)", Error);
  const Tensor c = Tensor::empty({2}, boolean), bytes = Tensor::empty({2}, u8);
  CHECK_THROWS_WITH_AS(where(c, bytes, int64_t{1} << 40),
                       "where: number 1099511627776 beside u8 is not in [-2147483648, 2147483647]",
                       Error);
  CHECK_THROWS_AS(where(c, int64_t{1} << 40, bytes), Error);
}
