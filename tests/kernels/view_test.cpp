#include <bs/autograd/copy.h>
#include <bs/autograd/grad_check.h>
#include <bs/autograd/view.h>
#include <bs/kernels/copy.h>
#include <bs/tests/support/devices.h>
#include <bs/tests/support/op_case.h>
#include <doctest/doctest.h>

using namespace bs;
using namespace bs::test;

namespace {

/// The elements of in[0] that a view of its indices picks: the reference of every view at once.
auto picked(Tensor (*view)(const Tensor&)) {
  return [view](const References& in) {
    Reference indices(in[0].shape);
    for (size_t i = 0; i < indices.values.size(); ++i) indices[i] = static_cast<double>(i);
    Reference y = Reference::of(view(indices.tensor(f64, Device::cpu())));
    for (double& v : y.values) v = in[0][static_cast<size_t>(v)];
    return y;
  };
}

void check_view(const char* name, const Shape& shape, Variable (*op)(const Variable&),
                Tensor (*view)(const Tensor&)) {
  check_op({.name = name,
            .inputs = {shape},
            .op = [op](const Variables& v) { return op(v[0]); },
            .reference = picked(view)});
}

using V = const Variable&;
using T = const Tensor&;

}  // namespace

TEST_CASE("views") {
  check_view(
      "view", {2, 6},
      [](V x) {
        return view(x, {3, -1});
      },
      [](T x) {
        return x.view({3, 4});
      });
  check_view(
      "permute", {2, 3, 4},
      [](V x) {
        return permute(x, {2, 0, -2});
      },
      [](T x) {
        return x.permute({2, 0, 1});
      });
  check_view(
      "transpose", {2, 3, 4}, [](V x) { return transpose(x, 0, -1); },
      [](T x) {
        return x.permute({2, 1, 0});
      });
  check_view(
      "unsqueeze", {2, 3}, [](V x) { return unsqueeze(x, -1); },
      [](T x) {
        return x.view({2, 3, 1});
      });
  check_view(
      "squeeze", {2, 1, 3}, [](V x) { return squeeze(x, 1); },
      [](T x) {
        return x.view({2, 3});
      });
  check_view(
      "slice", {4, 7}, [](V x) { return slice(x, 1, 1, -1, 2); },
      [](T x) { return x.slice(1, 1, 6, 2); });
  check_view(
      "slice", {4, 7}, [](V x) { return slice(x, 0, 2, 2); }, [](T x) { return x.slice(0, 0, 0); });
  check_view(
      "select", {4, 7}, [](V x) { return select(x, 1, -2); }, [](T x) { return x.select(1, 5); });
  check_view(
      "select", {4, 7}, [](V x) { return select(x, 0, 3); }, [](T x) { return x.select(0, 3); });
}

TEST_CASE("expand sums in its backward") {
  check_view(
      "expand", {3, 1},
      [](V x) {
        return expand(x, {2, 3, 4});
      },
      [](T x) {
        return x.expand({2, 3, 4});
      });
  check_view(
      "expand", {2, 3},
      [](V x) {
        return expand(x, {2, 3});
      },
      [](T x) { return x; });
}

TEST_CASE("flatten joins axes, and copies only where it must") {
  const Variable x = random_reference({2, 3, 4}, 1).tensor(f64, test_device());
  CHECK(flatten(x).shape() == Shape{24});
  CHECK(flatten(x, 1).shape() == Shape{2, 12});
  CHECK(flatten(x.data(), 0, -2).shape() == Shape{6, 4});
  CHECK(flatten(x, 1).data().shares_storage(x.data()));
  const Tensor turned = x.data().transpose(0, 1);
  CHECK(flatten(turned, 2).shares_storage(turned));
  CHECK_FALSE(flatten(turned).shares_storage(turned));
  CHECK(same_bits(flatten(turned, 0, 1), reshape(turned, {6, 4})));
  CHECK(flatten(x.data().select(0, 0).select(0, 0).select(0, 0)).shape() == Shape{1});
  gradcheck([](const Variables& v) { return flatten(transpose(v[0], 0, 2), 0, 1); },
            {Variable(x.data(), true)});
  CHECK_THROWS_WITH_AS(flatten(x, 2, 1), "flatten: axes 2..1 of [2, 3, 4]", Error);
  CHECK_THROWS_WITH_AS(flatten(x, 0, 3), "flatten: axis 3 is out of range for rank 3", Error);
}

TEST_CASE("reshape copies only where it must") {
  check_view(
      "reshape", {2, 3, 4},
      [](V x) {
        return reshape(transpose(x, 0, 1), {6, 4});
      },
      [](T x) {
        return clone(x.transpose(0, 1)).view({6, 4});
      });
  const Variable x(Reference({2, 3, 4}).tensor(f32, test_device()), true);
  CHECK(reshape(x, {6, 4}).data().shares_storage(x.data()));
  CHECK(reshape(transpose(x, 1, 2), {2, 12}).shape() == Shape{2, 12});
  CHECK_FALSE(reshape(transpose(x, 1, 2), {2, 12}).data().shares_storage(x.data()));
  CHECK_THROWS_AS(view(transpose(x, 1, 2), {2, 12}), Error);
}

TEST_CASE("contiguous") {
  check_view(
      "contiguous", {3, 4}, [](V x) { return contiguous(transpose(x, 0, 1)); },
      [](T x) { return x.transpose(0, 1); });
  const Variable x(Reference({3, 4}).tensor(f32, test_device()), true);
  CHECK(contiguous(x).data().shares_storage(x.data()));
}

TEST_CASE("cast brings the gradient back in the input's dtype") {
  const Variable x(random_reference({5}, 1).tensor(f32, test_device()), true);
  const Variable y = cast(x, bf16);
  CHECK(y.dtype() == bf16);
  const Reference dy = Reference::of(random_reference({5}, 2).tensor(bf16, Device::cpu()));
  y.backward(dy.tensor(bf16, test_device()));
  CHECK(x.grad().dtype() == f32);
  CHECK(Reference::of(x.grad()).values == dy.values);
  CHECK_THROWS_WITH_AS(cast(x, i64), "cast: from f32 to i64 with a gradient; detach first", Error);
  CHECK(cast(x.detach(), i64).dtype() == i64);
}

TEST_CASE("to brings the gradient back to the input's device") {
  const Variable x(random_reference({5}, 1).tensor(f32, Device::cpu()), true);
  const Variable y = to(x, test_device());
  CHECK(y.device() == test_device());
  const Reference dy = random_reference({5}, 2);
  y.backward(dy.tensor(f32, test_device()));
  CHECK(x.grad().device() == Device::cpu());
}
