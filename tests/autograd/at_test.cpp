#include <bs/autograd/at.h>
#include <bs/autograd/binary.h>
#include <bs/autograd/grad_check.h>
#include <bs/autograd/reduce.h>
#include <bs/autograd/view.h>
#include <bs/kernels/arange.h>
#include <bs/kernels/compare.h>
#include <bs/kernels/fill.h>
#include <bs/kernels/logic.h>
#include <bs/tests/support/devices.h>
#include <bs/tests/support/reference.h>
#include <doctest/doctest.h>

#include <limits>

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

TEST_CASE("a mask of bool stands for its axes, and a vector of numbers for one") {
  const Tensor x = arange(24, i64, test_device()).view({2, 3, 4});
  const Tensor rows = Tensor::from({true, false, false, false, true, true}, {2, 3});
  const Tensor mask = rows.to(test_device());
  CHECK(at(x, {mask}).shape() == Shape{3, 4});
  CHECK(values(at(x, {mask, 1})) == std::vector<double>{1, 17, 21});
  CHECK(values(at(x, {Ellipsis(), mask[1], 0})) == std::vector<double>{4, 8, 16, 20});
  CHECK(at(x, {x > 20}).shape() == Shape{3});
  CHECK(at(x, {x > 100}).shape() == Shape{0});
  CHECK(at(x, {Slice(), zeros({3}, boolean, test_device())}).shape() == Shape{2, 0, 4});
  const Tensor numbers = Tensor::from<int64_t>({2, 0, 2}).to(test_device());
  CHECK(values(at(x, {1, numbers, 3})) == std::vector<double>{23, 15, 23});
}

TEST_CASE("what a mask chooses carries gradients") {
  const Variable x(random_reference({3, 4}, 1).tensor(f64, test_device()), true);
  const Tensor mask = x.data() > 0, rows = Tensor::from({true, false, true}).to(test_device());
  const Tensor twice = Tensor::from<int64_t>({1, 1}).to(test_device());
  gradcheck([&](const auto& v) { return at(v[0], {mask}); }, {x});
  gradcheck([&](const auto& v) { return at(v[0], {rows, Slice(0, 3)}); }, {x});
  gradcheck([&](const auto& v) { return at(v[0], {Slice(), twice}); }, {x});
}

TEST_CASE("writing through a mask, and to positions") {
  const Tensor whole = zeros({3, 4}, i64, test_device());
  const Tensor x = whole.slice(1, 0, 3);  // a view with gaps
  const Tensor mask = Tensor::from({false, true, true}).to(test_device());
  assign(x, {mask}, 2.5);  // a number takes x's dtype
  CHECK(values(whole) == std::vector<double>{0, 0, 0, 0, 2, 2, 2, 0, 2, 2, 2, 0});
  assign(x, {mask, 1}, Tensor::from<int64_t>({7, 8}).to(test_device()));
  CHECK(values(whole) == std::vector<double>{0, 0, 0, 0, 2, 7, 2, 0, 2, 8, 2, 0});
  assign(x, {Slice(), Tensor::from<int64_t>({2, 0}).to(test_device())},
         Tensor::from<int64_t>({5, 6}).to(test_device()));
  CHECK(values(whole) == std::vector<double>{6, 0, 5, 0, 6, 7, 5, 0, 6, 8, 5, 0});
  assign(x, {x > 6}, Tensor::from<int64_t>({1, 3}).to(test_device()));
  CHECK(values(whole) == std::vector<double>{6, 0, 5, 0, 6, 1, 5, 0, 6, 3, 5, 0});
  assign(x, {x > 100}, 1);
  CHECK(values(whole.select(1, 3)) == std::vector<double>{0, 0, 0});
  const Tensor y = full({2}, std::numeric_limits<double>::quiet_NaN(), f32, test_device());
  assign(y, {ne(y, y)}, 0);  // what is replaced leaves nothing behind
  CHECK(values(y) == std::vector<double>{0, 0});
}

TEST_CASE("masks that do not fit") {
  const Tensor x = zeros({2, 3}, f32, test_device());
  const Tensor mask = zeros({2}, boolean, test_device());
  CHECK_THROWS_WITH_AS(at(x, {Slice(), mask}), "at: mask [2] at axis 1 of shape [2, 3]", Error);
  CHECK_THROWS_WITH_AS(at(x, {mask, mask[0]}),
                       "at: 2 masks or lists of positions, of which one is allowed; see index",
                       Error);
  CHECK_THROWS_WITH_AS(at(x, {zeros({2}, f32, test_device())}),
                       "at: f32 [2] as an index; a mask of bool, or a vector of i64 or i32, is one",
                       Error);
  CHECK_THROWS_WITH_AS(at(x, {Tensor()}), "at: an undefined tensor as an index", Error);
  CHECK_THROWS_WITH_AS(assign(x, {ones({2}, boolean, test_device())}, zeros({1, 2, 3})),
                       "assign: values [1, 2, 3] into a part [2, 3]", Error);
}

TEST_CASE("members: an element of the first axis, another shape, a copy") {
  const Tensor x = arange(6, f64, test_device()).view({2, 3});
  CHECK(x[1].shares_storage(x));
  CHECK(x[1][-1].item() == 5);
  CHECK(x.reshape({3, 2}).shares_storage(x));
  const Tensor turned = x.transpose(0, 1).reshape({6});
  CHECK(values(turned) == std::vector<double>{0, 3, 1, 4, 2, 5});
  const Tensor copied = x.transpose(0, 1).clone();
  CHECK(copied.is_contiguous());
  CHECK(!copied.shares_storage(x));
  CHECK(values(copied) == std::vector<double>{0, 3, 1, 4, 2, 5});
  CHECK_THROWS_WITH_AS(x[2], "select: index 2 on axis 0 of [2, 3]", Error);
  CHECK_THROWS_AS(x[0][0][0], Error);

  const Variable v(x, true);
  gradcheck([](const auto& u) { return u[0][1]; }, {v});
  gradcheck([](const auto& u) { return transpose(u[0], 0, 1).reshape({6}) * u[0].reshape({6}); },
            {v});
  gradcheck([](const auto& u) { return u[0].clone()[-1] * u[0][0]; }, {v});
  CHECK(!v.clone().data().shares_storage(x));
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
