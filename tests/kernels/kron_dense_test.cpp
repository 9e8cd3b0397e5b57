#include <bs/autograd/grad_check.h>
#include <bs/autograd/kron.h>
#include <bs/kernels/kron.h>
#include <bs/tests/kernels/kron_cases.h>
#include <bs/tests/support/devices.h>
#include <bs/tests/support/op_case.h>
#include <doctest/doctest.h>

#include <utility>
#include <vector>

using namespace bs;
using namespace bs::test;

TEST_CASE("kron: the dense product of two matrices") {
  const Tensor a = Tensor::from({1.0, 2.0}, {1, 2}).to(test_device());
  const Tensor b = Tensor::from({3.0, 4.0, 5.0, 6.0}, {2, 2}).to(test_device());
  const Reference y = Reference::of(kron(a, b));
  CHECK(y.shape == Shape{2, 4});
  CHECK(y.values == std::vector<double>{3, 4, 6, 8, 5, 6, 10, 12});
  CHECK_THROWS_WITH_AS(kron(Tensor::empty({2}, f32), Tensor::empty({2, 2}, f32)),
                       "kron: [2] and [2, 2] are not two matrices", Error);
}

TEST_CASE("kron: forward and gradients, of any extents, strides and dtypes") {
  const auto reference = [](const References& in) {
    const int64_t p = in[1].shape[0], q = in[1].shape[1];
    Reference y({in[0].shape[0] * p, in[0].shape[1] * q});
    for (int64_t i = 0; i < y.shape[0]; ++i)
      for (int64_t j = 0; j < y.shape[1]; ++j)
        y.at({i, j}) = in[0].at({i / p, j / q}) * in[1].at({i % p, j % q});
    return y;
  };
  const auto op = [](const Variables& v) { return kron(v[0], v[1]); };
  for (const auto& [a, b] : std::vector<std::pair<Shape, Shape>>{{{2, 3}, {4, 5}},
                                                                 {{1, 1}, {3, 2}},
                                                                 {{7, 1}, {1, 1}},
                                                                 {{0, 2}, {3, 4}},
                                                                 {{2, 3}, {4, 0}},
                                                                 {{17, 9}, {5, 33}}})
    check_op({.name = "kron", .inputs = {a, b}, .op = op, .reference = reference, .steps = 64});
  const Reference a = random_reference({3, 4}, 1), b = random_reference({2, 5}, 2),
                  dy = random_reference({6, 20}, 3);
  Reference da(a.shape), db(b.shape);
  for (int64_t i = 0; i < 6; ++i)
    for (int64_t j = 0; j < 20; ++j) {
      da.at({i / 2, j / 5}) += dy.at({i, j}) * b.at({i % 2, j % 5});
      db.at({i % 2, j % 5}) += dy.at({i, j}) * a.at({i / 2, j / 5});
    }
  const auto turned = [](const Reference& r) {
    return transposed(r).tensor(f64, test_device()).transpose(0, 1);
  };
  check_close("da", Reference::of(kron_backward_a({3, 4}, turned(b), turned(dy))), da, 1e-14);
  check_close("db", Reference::of(kron_backward_b(turned(a), {2, 5}, turned(dy))), db, 1e-14);
}

TEST_CASE("kron: gradients of what requires one, by factors of a product of three") {
  const auto leaf = [](const Shape& shape, uint64_t seed) {
    return Variable(random_reference(shape, seed).tensor(f64, test_device()), true);
  };
  const auto three = [](const Variables& v) { return kron(kron(v[0], v[1]), v[2]); };
  gradcheck(three, {leaf({2, 3}, 1), leaf({3, 1}, 2), leaf({2, 2}, 3)});
  gradcheck(three, {leaf({2, 3}, 1).detach(), leaf({3, 1}, 2), leaf({2, 2}, 3).detach()});
  const Variable a = leaf({2, 2}, 1), b = leaf({2, 2}, 2).detach();
  kron(a, b).backward(random_reference({4, 4}, 3).tensor(f64, test_device()));
  CHECK(a.grad().defined());
  CHECK_FALSE(b.grad().defined());
}

TEST_CASE("kron's gradients refuse what does not fit") {
  const auto t = [](const Shape& shape) { return Tensor::empty(shape, f32); };
  CHECK_THROWS_WITH_AS(kron_backward_a({2, 3}, t({4, 5}), t({8, 14})),
                       "kron_backward_a: dy [8, 14] for matrices [2, 3] and [4, 5]", Error);
  CHECK_THROWS_WITH_AS(kron_backward_b(t({2}), {4, 5}, t({8, 15})),
                       "kron_backward_b: [2] and [4, 5] are not two matrices", Error);
}
