#include <bs/autograd/lerp.h>
#include <bs/kernels/fill.h>
#include <bs/tests/support/devices.h>
#include <bs/tests/support/op_case.h>
#include <doctest/doctest.h>

using namespace bs;
using namespace bs::test;

TEST_CASE("lerp with a number") {
  for (const double weight : {0.0, 0.25, 0.5, 0.9, 1.0, -0.5, 2.0})
    for (const Shape& shape : {Shape{}, Shape{0}, Shape{3, 7}, Shape{2, 513}})
      check_op({.name = "lerp " + std::to_string(weight),
                .inputs = {shape, shape},
                .op = [weight](const Variables& v) { return lerp(v[0], v[1], weight); },
                .reference =
                    [weight](const References& in) {
                      Reference y = in[0];
                      for (size_t i = 0; i < y.values.size(); ++i)
                        y[i] = in[0][i] + weight * (in[1][i] - in[0][i]);
                      return y;
                    }});
}

TEST_CASE("lerp with a weight for each element, and shapes that broadcast") {
  check_op({.name = "lerp",
            .inputs = {{4, 3}, {3}, {4, 1}},
            .op = [](const Variables& v) { return lerp(v[0], v[1], v[2]); },
            .reference =
                [](const References& in) {
                  Reference y = in[0];
                  for (size_t i = 0; i < y.values.size(); ++i)
                    y[i] = in[0][i] + in[2][i / 3] * (in[1][i % 3] - in[0][i]);
                  return y;
                }});
}

TEST_CASE("lerp meets both ends, and views and integers go in") {
  const Tensor a = random_reference({5, 6}, 1, -9, 9).tensor(f32, test_device()).transpose(0, 1);
  const Tensor b = random_reference({6, 5}, 2, -1e-3, 1e-3).tensor(f32, test_device());
  CHECK(Reference::of(lerp(a, b, 0)).values == Reference::of(a).values);
  CHECK(Reference::of(lerp(a, b, 1)).values == Reference::of(b).values);
  const Tensor between =
      lerp(full({2}, 1, i64, test_device()), full({2}, 2, i64, test_device()), 0.5);
  CHECK(between.dtype() == f32);
  CHECK(Reference::of(between).values == std::vector<double>{1.5, 1.5});
  CHECK_THROWS_WITH_AS(lerp(a, b.transpose(0, 1), 0.5), doctest::Contains("do not broadcast"),
                       Error);
}
