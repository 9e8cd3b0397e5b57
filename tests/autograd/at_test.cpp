#include <bs/autograd/at.h>
#include <bs/autograd/reduce.h>
#include <bs/kernels/arange.h>
#include <bs/kernels/compare.h>
#include <bs/kernels/fill.h>
#include <bs/kernels/logic.h>
#include <bs/tests/support/devices.h>
#include <bs/tests/support/reference.h>
#include <doctest/doctest.h>

using namespace bs;
using namespace bs::test;

namespace {
std::vector<double> values(const Tensor& x) { return Reference::of(x).values; }
}  // namespace

TEST_CASE("parts of tensors") {
  const Tensor x = arange(24, i64, test_device()).view({2, 3, 4});
  CHECK(values(at(x, {1, 2})) == std::vector<double>{20, 21, 22, 23});
  CHECK(at(x, {1, 2, 3}).item() == 23);
  CHECK(at(x, {-1, -1, -1}).item() == 23);
  CHECK(values(at(x, {0, Slice(), Slice(1, 3)})) == std::vector<double>{1, 2, 5, 6, 9, 10});
  CHECK(values(at(x, {0, 0, Slice(0, Slice::to_the_end, 2)})) == std::vector<double>{0, 2});
  CHECK(values(at(x, {Ellipsis(), 0})) == std::vector<double>{0, 4, 8, 12, 16, 20});
  CHECK(at(x, {None(), Slice(), None(), Ellipsis(), None()}).shape() == Shape{1, 2, 1, 3, 4, 1});
  CHECK(at(x, {1, Ellipsis(), Slice(-2)}).shape() == Shape{3, 2});
  CHECK(at(x, {Ellipsis()}).shape() == x.shape());
  CHECK(at(x, {}).data() == x.data());
  CHECK(at(x, {1}).shares_storage(x));
}

TEST_CASE("parts of variables carry gradients") {
  const Variable x(zeros({2, 3}, f64, test_device()), true);
  sum(at(x, {1, Slice(1)})).backward();
  CHECK(values(x.grad()) == std::vector<double>{0, 0, 0, 0, 1, 1});
}

TEST_CASE("writing to parts") {
  const Tensor x = zeros({2, 3}, f32, test_device());
  assign(x, {1}, arange(3, f32, test_device()));
  assign(x, {Slice(), 0}, 7);
  CHECK(values(x) == std::vector<double>{7, 0, 0, 7, 1, 2});
  CHECK_THROWS_WITH_AS(assign(x, {1}, zeros({2, 3}, f32, test_device())),
                       "assign: values [2, 3] into a part [3]", Error);
}

TEST_CASE("parts that are not there") {
  const Tensor x = zeros({2, 3});
  CHECK_THROWS_WITH_AS(at(x, {2}), "at: position 2 of an axis of 2 in shape [2, 3]", Error);
  CHECK_THROWS_WITH_AS(at(x, {0, 0, 0}), "at: 3 indices for shape [2, 3]", Error);
  CHECK_THROWS_WITH_AS(at(x, {Ellipsis(), Ellipsis()}), "at: 2 ellipses for shape [2, 3]", Error);
}

TEST_CASE("comparisons as operators, and logic") {
  const Tensor x = arange(4, i64, test_device());
  CHECK(values(x < 2) == std::vector<double>{1, 1, 0, 0});
  CHECK(values(x <= 2) == std::vector<double>{1, 1, 1, 0});
  CHECK(values(2 < x) == std::vector<double>{0, 0, 0, 1});
  CHECK(values(x >= x) == std::vector<double>{1, 1, 1, 1});
  CHECK(values(logical_and(x > 0, x < 3)) == std::vector<double>{0, 1, 1, 0});
  CHECK(values(logical_or(x<1, x> 2)) == std::vector<double>{1, 0, 0, 1});
  CHECK(values(logical_not(x)) == std::vector<double>{1, 0, 0, 0});
  CHECK(values(logical_xor(x, x < 2)) == std::vector<double>{1, 0, 1, 1});
}
