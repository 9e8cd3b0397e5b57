// Products and positions of extremes over several axes, or all.
#include <bs/autograd/scan.h>
#include <bs/kernels/fill.h>
#include <bs/kernels/reduce.h>
#include <bs/kernels/scan.h>
#include <bs/kernels/sort.h>
#include <bs/tests/support/devices.h>
#include <bs/tests/support/op_case.h>
#include <doctest/doctest.h>

using namespace bs;
using namespace bs::test;

namespace {

std::vector<double> of(const Tensor& x) { return Reference::of(x).values; }

Reference prod_of_outer_axes(const Reference& x) {
  Reference y({x.shape[1]});
  for (int64_t j = 0; j < x.shape[1]; ++j) {
    y.at({j}) = 1;
    for (int64_t i = 0; i < x.shape[0]; ++i)
      for (int64_t k = 0; k < x.shape[2]; ++k) y.at({j}) *= x.at({i, j, k});
  }
  return y;
}

}  // namespace

TEST_CASE("prod over several axes and over all") {
  check_op({.name = "prod of two axes",
            .inputs = {{2, 3, 4}},
            .op =
                [](const Variables& v) {
                  return prod(v[0], Dims{-1, 0});
                },
            .reference = [](const References& in) { return prod_of_outer_axes(in[0]); },
            .low = 0.5,
            .high = 1.5});
  check_op({.name = "prod of all",
            .inputs = {{2, 3, 2}},
            .op = [](const Variables& v) { return prod(v[0], {}, true); },
            .reference =
                [](const References& in) {
                  Reference y({1, 1, 1});
                  y[0] = 1;
                  for (const double value : in[0].values) y[0] *= value;
                  return y;
                },
            .low = 0.5,
            .high = 1.5});
  const Tensor x = Tensor::from<int32_t>({1, 2, 3, 4, 5, 6}, {2, 3}).to(test_device());
  CHECK(prod(x).shape() == Shape{});
  CHECK(prod(x).item() == 720);
  CHECK(prod(x).dtype() == i64);
  CHECK(prod(x, Dims{}).shape() == x.shape());
  CHECK(prod(zeros({2, 0}, f32, test_device())).item() == 1);
  CHECK_THROWS_WITH_AS(prod(x, Dims{0, 0}), doctest::Contains("axis 0 is named twice"), Error);
}

TEST_CASE("argmax and argmin over several axes and over all") {
  const Tensor x =
      Tensor::from<double>({3, 9, 1, 4, 9, 0, 7, 2, 5, 8, 6, 11}, {2, 3, 2}).to(test_device());
  CHECK(argmax(x, Axes()).shape() == Shape{});
  CHECK(argmax(x, Axes()).item() == 11);
  CHECK(argmin(x, Axes()).item() == 5);
  CHECK(argmax(x.slice(0, 0, 1), Axes()).item() == 1);  // the first of the largest
  // Over the first and the last axis they are numbered 0 to 3.
  CHECK(of(argmax(x, Dims{0, 2})) == std::vector<double>{1, 3, 3});
  CHECK(of(argmax(x, Dims{2, 0})) == std::vector<double>{1, 3, 3});
  CHECK(of(argmin(x, Dims{0, 2})) == std::vector<double>{3, 0, 1});
  CHECK(argmin(x, Dims{0, 2}, true).shape() == Shape{1, 3, 1});
  CHECK(of(argmax(x, Dims{1, 2})) == std::vector<double>{1, 5});
  CHECK_THROWS_WITH_AS(argmax(zeros({0, 2}, f32, test_device()), Axes()),
                       "argmax: nothing to choose from in shape [0, 2]", Error);
}
