#include <bs/autograd/binary.h>
#include <bs/autograd/reduce.h>
#include <bs/kernels/binary.h>
#include <bs/kernels/copy.h>
#include <bs/kernels/fill.h>
#include <bs/kernels/rounding.h>
#include <bs/tests/support/devices.h>
#include <bs/tests/support/op_case.h>
#include <doctest/doctest.h>

#include <algorithm>
#include <limits>

using namespace bs;
using namespace bs::test;

namespace {

using Function = double (*)(double, double);

/// f over two references broadcast together, index by index.
Reference broadcast(const References& in, Function f) {
  Reference y(broadcast_shapes("reference", in[0].shape, in[1].shape));
  for (size_t i = 0; i < y.values.size(); ++i) {
    double operands[2];
    for (size_t n = 0; n < 2; ++n) {
      auto rest = static_cast<int64_t>(i);
      int64_t at = 0;
      int64_t step = 1;
      for (int axis = 1; axis <= y.shape.rank(); ++axis) {
        const int64_t index = rest % y.shape[-axis];
        rest /= y.shape[-axis];
        if (axis > in[n].shape.rank()) continue;
        at += (in[n].shape[-axis] == 1 ? 0 : index) * step;
        step *= in[n].shape[-axis];
      }
      operands[n] = in[n][static_cast<size_t>(at)];
    }
    y[i] = f(operands[0], operands[1]);
  }
  return y;
}

void check_binary(const char* name, Variable (*op)(const Variable&, const Variable&), Function f,
                  double low = -1, double high = 1) {
  const std::vector<std::vector<Shape>> shapes = {
      {{3, 5}, {3, 5}}, {{}, {}},      {{2, 1, 3}, {4, 1}}, {{1031}, {1031}},    {{6, 700}, {700}},
      {{5}, {}},        {{0, 3}, {3}}, {{3, 1}, {1, 600}},  {{2, 3, 4}, {3, 1}}, {{1}, {2, 2}}};
  for (const auto& pair : shapes)
    check_op({.name = name,
              .inputs = pair,
              .op = [=](const Variables& v) { return op(v[0], v[1]); },
              .reference = [=](const References& in) { return broadcast(in, f); },
              .low = low,
              .high = high});
}

using Unary = Variable (*)(const Variable&);

/// An operation with a number in place of one operand.
void check_scalar(const char* name, Unary op, double (*f)(double), double low = -1,
                  double high = 1) {
  check_op({.name = name,
            .inputs = {{3, 257}},
            .op = [=](const Variables& v) { return op(v[0]); },
            .reference =
                [=](const References& in) {
                  Reference y = in[0];
                  for (double& v : y.values) v = f(v);
                  return y;
                },
            .low = low,
            .high = high});
}

template <class T>
std::vector<double> values(const Tensor& x) {
  CHECK(x.dtype() == dtype_of<T>);
  return Reference::of(x).values;
}

Tensor on_device(const Tensor& x) { return x.to(test_device()); }

constexpr float none = std::numeric_limits<float>::quiet_NaN();

}  // namespace

TEST_CASE("add") {
  check_binary("add", add, [](double a, double b) { return a + b; });
}
TEST_CASE("sub") {
  check_binary("sub", sub, [](double a, double b) { return a - b; });
}
TEST_CASE("mul") {
  check_binary("mul", mul, [](double a, double b) { return a * b; });
}
TEST_CASE("div") {
  check_binary(
      "div", div, [](double a, double b) { return a / b; }, 0.5, 2);
}
TEST_CASE("pow") {
  check_binary(
      "pow", pow, [](double a, double b) { return std::pow(a, b); }, 0.5, 2);
}
TEST_CASE("minimum") {
  check_binary("minimum", minimum, [](double a, double b) { return std::min(a, b); });
}
TEST_CASE("maximum") {
  check_binary("maximum", maximum, [](double a, double b) { return std::max(a, b); });
}

TEST_CASE("arithmetic with numbers") {
  check_scalar(
      "x + 2", [](const Variable& x) { return x + 2; }, [](double x) { return x + 2; });
  check_scalar(
      "2 + x", [](const Variable& x) { return 2 + x; }, [](double x) { return 2 + x; });
  check_scalar(
      "x - 2", [](const Variable& x) { return x - 2; }, [](double x) { return x - 2; });
  check_scalar(
      "2 - x", [](const Variable& x) { return 2 - x; }, [](double x) { return 2 - x; });
  check_scalar(
      "x * 3", [](const Variable& x) { return x * 3; }, [](double x) { return x * 3; });
  check_scalar(
      "3 * x", [](const Variable& x) { return 3 * x; }, [](double x) { return 3 * x; });
  check_scalar(
      "x / 3", [](const Variable& x) { return x / 3; }, [](double x) { return x / 3; });
  check_scalar(
      "3 / x", [](const Variable& x) { return 3 / x; }, [](double x) { return 3 / x; }, 0.5, 2);
  check_scalar(
      "x^2", [](const Variable& x) { return pow(x, 2); }, [](double x) { return x * x; });
  check_scalar(
      "x^3", [](const Variable& x) { return pow(x, 3); }, [](double x) { return x * x * x; });
  check_scalar(
      "x^1.5", [](const Variable& x) { return pow(x, 1.5); },
      [](double x) { return std::pow(x, 1.5); }, 0.5, 2);
  check_scalar(
      "2^x", [](const Variable& x) { return pow(2, x); }, [](double x) { return std::pow(2, x); });
  check_scalar(
      "min(x, 0.1)", [](const Variable& x) { return minimum(x, 0.1); },
      [](double x) { return std::min(x, 0.1); });
  check_scalar(
      "max(x, 0.1)", [](const Variable& x) { return maximum(x, 0.1); },
      [](double x) { return std::max(x, 0.1); });
}

TEST_CASE("arithmetic promotes dtypes as PyTorch does") {
  const auto x = [](DType dtype) { return on_device(Reference({2}).tensor(dtype, Device::cpu())); };
  CHECK(add(x(f16), x(bf16)).dtype() == f32);
  CHECK(add(x(i64), x(bf16)).dtype() == bf16);
  CHECK(mul(x(u8), x(i32)).dtype() == i32);
  CHECK(div(x(i32), x(i64)).dtype() == f32);
  CHECK((x(f16) * 2.5).dtype() == f16);
  CHECK((x(f64) * 2).dtype() == f64);
  CHECK((x(i32) * 2).dtype() == i32);
  CHECK((x(i32) * 2.5).dtype() == f32);
  CHECK((x(boolean) + 1).dtype() == i64);
  CHECK((x(boolean) + x(boolean)).dtype() == boolean);
  CHECK((x(boolean) + true).dtype() == boolean);
  CHECK((x(boolean) + 1.0).dtype() == f32);
  CHECK((x(u8) + true).dtype() == u8);
  CHECK((x(f16) * true).dtype() == f16);
  CHECK((x(u8) - 1).dtype() == u8);
}

TEST_CASE("a tensor without axes gives way to one with some, as in PyTorch") {
  const auto x = [](DType dtype) { return on_device(Reference({2}).tensor(dtype, Device::cpu())); };
  const auto one = [](DType dtype) {
    return on_device(Reference(Shape{}).tensor(dtype, Device::cpu()));
  };
  CHECK(add(x(f16), one(f64)).dtype() == f16);
  CHECK(add(one(f64), x(f16)).dtype() == f16);
  CHECK(add(x(u8), one(i64)).dtype() == u8);
  CHECK(add(x(i32), one(f64)).dtype() == f64);  // a higher kind counts
  CHECK(add(x(i32), one(f16)).dtype() == f16);
  CHECK(add(x(boolean), one(u8)).dtype() == u8);
  CHECK(add(one(f16), one(f64)).dtype() == f64);
  CHECK(maximum(x(f32).slice(0, 0, 1), one(f64)).dtype() == f32);
  const Variable a(x(f32), true), b(one(f64), true);
  sum(a * b).backward();
  CHECK(a.grad().dtype() == f32);
  CHECK(b.grad().dtype() == f64);
}

TEST_CASE("arithmetic on integers") {
  const Tensor a = on_device(Tensor::from<int32_t>({7, -7, 2147483647, 3}));
  const Tensor b = on_device(Tensor::from<int32_t>({2, 2, 1, -1}));
  CHECK(values<int32_t>(a + b) == std::vector<double>{9, -5, -2147483648.0, 2});
  CHECK(values<int32_t>(a * b) == std::vector<double>{14, -14, 2147483647, -3});
  CHECK(values<int32_t>(minimum(a, b)) == std::vector<double>{2, -7, 1, -1});
  CHECK(values<float>(a / b) == std::vector<double>{3.5, -3.5, 2147483648.0, -3});
  CHECK(values<int32_t>(pow(b, a)) == std::vector<double>{128, 0, 1, -1});
  const Tensor bytes = on_device(Tensor::from<uint8_t>({250, 3}));
  CHECK(values<uint8_t>(bytes + 10) == std::vector<double>{4, 13});
  CHECK(values<uint8_t>(1 - bytes) == std::vector<double>{7, 254});
  const Tensor flags = on_device(Tensor::from<bool>({true, false, true, false}));
  const Tensor others = on_device(Tensor::from<bool>({true, true, false, false}));
  CHECK(values<bool>(flags + others) == std::vector<double>{1, 1, 1, 0});
  CHECK(values<bool>(flags * others) == std::vector<double>{1, 0, 0, 0});
}

TEST_CASE("minimum and maximum pass NaN on and share the gradient of equal operands") {
  const Tensor a = on_device(Tensor::from<float>({none, 1, 2, 5}));
  const Tensor b = on_device(Tensor::from<float>({1, none, 2, 4}));
  const auto low = Reference::of(minimum(a, b)).values;
  CHECK((std::isnan(low[0]) && std::isnan(low[1]) && low[2] == 2 && low[3] == 4));
  const auto high = Reference::of(maximum(a, b)).values;
  CHECK((std::isnan(high[0]) && std::isnan(high[1]) && high[2] == 2 && high[3] == 5));
  const Variable p(a, true);
  const Variable q(b, true);
  maximum(p, q).backward(on_device(Tensor::from<float>({1, 1, 1, 1})));
  CHECK(Reference::of(p.grad()).values == std::vector<double>{0, 0, 0.5, 1});
  CHECK(Reference::of(q.grad()).values == std::vector<double>{0, 0, 0.5, 0});
}

TEST_CASE("arithmetic takes operands of any strides and dtypes") {
  const Reference r = random_reference({6, 8}, 1);
  const Tensor x = r.tensor(f32, test_device());
  const Tensor y = r.tensor(f64, test_device());
  const Tensor z = sub(x.transpose(0, 1).slice(0, 1, 8, 3), y.slice(1, 2, 5).transpose(0, 1));
  CHECK(z.dtype() == f64);
  for (int64_t i = 0; i < 3; ++i)
    for (int64_t j = 0; j < 6; ++j)
      CHECK(Reference::of(z).at({i, j}) ==
            static_cast<double>(static_cast<float>(r.at({j, 1 + 3 * i}))) - r.at({j, 2 + i}));
  // A view that starts off a vector's boundary.
  const Tensor odd = add(x.flatten().slice(0, 1, 48), x.flatten().slice(0, 0, 47));
  CHECK(Reference::of(odd)[5] ==
        static_cast<double>(static_cast<float>(r[5]) + static_cast<float>(r[6])));
}

TEST_CASE("arithmetic broadcasts along each axis, in vectors or not") {
  for (const DType dtype : {u8, bf16, f32, f64})
    for (const Shape& shape : {Shape{3, 16, 32}, Shape{5, 18, 31}, Shape{2, 40, 24}}) {
      const auto numbers = [](const Shape& of) {
        Reference r(of);
        for (size_t i = 0; i < r.values.size(); ++i) r[i] = static_cast<double>(i * 7 % 61);
        return r;
      };
      const Reference x = numbers(shape);
      const Tensor a = x.tensor(dtype, test_device());
      std::vector<Tensor> others;
      for (int axis = 0; axis < 3; ++axis) {
        Shape one = shape, alone = {1, 1, 1};
        one[axis] = 1;
        alone[axis] = shape[axis];
        others.push_back(numbers(one).tensor(dtype, test_device()));
        others.push_back(numbers(alone).tensor(dtype, test_device()));
      }
      // Turned, and beginning between vectors.
      const Shape turned = {shape[0], shape[2], shape[1]};
      others.push_back(numbers(turned).tensor(dtype, test_device()).transpose(1, 2));
      const Shape longer = {shape[0], shape[1], shape[2] + 3};
      others.push_back(numbers(longer).tensor(dtype, test_device()).slice(2, 1, shape[2] + 1));
      for (const Tensor& b : others) {
        const Reference sum = Reference::of(add(a, b)), all = Reference::of(b.expand(shape));
        for (size_t i = 0; i < sum.values.size(); ++i) CHECK(sum[i] == x[i] + all[i]);
      }
    }
}

TEST_CASE("arithmetic on rows of equal elements") {
  for (const DType dtype : {f64, f32, f16, bf16, i64, u8}) {
    CAPTURE(to_string(dtype));
    const Tensor column = random_reference({301, 1}, 5, 1, 9).tensor(dtype, test_device());
    const Tensor all = column.expand({301, 130}), dense = contiguous(all);
    CHECK(Reference::of(add(all, 2)).values == Reference::of(add(dense, 2)).values);
    CHECK(Reference::of(mul(all, all)).values == Reference::of(mul(dense, dense)).values);
  }
}

TEST_CASE("16-bit arithmetic: all numbers, dense or not, whole blocks or not") {
  const auto check = [](const auto& one, DType dtype) {
    using T = std::decay_t<decltype(one)>;
    constexpr int64_t n = 65536, odd = n - 37;
    const Tensor all = Tensor::empty({n}, dtype, Device::cpu());
    const Tensor wide = Tensor::empty({n, 2}, dtype, Device::cpu());
    for (int64_t i = 0; i < n; ++i)
      all.data<T>()[i] = wide.data<T>()[2 * i] = T::from_bits(static_cast<uint16_t>(i));
    const Tensor some = all.slice(0, 0, odd),
                 apart = wide.slice(1, 0, 1).view({n}).slice(0, 0, odd);
    const Tensor factor = full({}, 0.75, dtype, Device::cpu());
    // 0.75 is a number of either dtype, 0.7 of neither.
    const std::pair<Tensor, float> results[] = {{mul(some, factor.expand({odd})), .75F},
                                                {mul(apart, factor.expand({odd})), .75F},
                                                {mul(some, .75), .75F},
                                                {mul(apart, .75), .75F},
                                                {mul(some, .7), .7F},
                                                {mul(apart, .7), .7F},
                                                {mul(all.view({64, 1024}), factor), .75F},
                                                {mul(all.view({n, 1}), factor), .75F},
                                                {mul(all.view({256, 256}), .75), .75F}};
    for (const auto& [y, by] : results) {
      const Tensor dense = contiguous(y);
      int64_t wrong = 0;
      for (int64_t i = 0; i < y.numel(); ++i) {
        const auto x = static_cast<float>(T::from_bits(static_cast<uint16_t>(i)));
        const T got = dense.data<T>()[i];
        wrong += x == x ? got.bits != T(x * by).bits
                        : static_cast<float>(got) == static_cast<float>(got);
      }
      CHECK(wrong == 0);
    }
  };
  check(half(), f16);
  check(bfloat16(), bf16);
}

TEST_CASE("a gradient comes in its operand's own dtype") {
  const Variable a(Reference({2, 3}).tensor(bf16, test_device()), true);
  const Variable b(random_reference({3}, 3).tensor(f32, test_device()), true);
  const Variable y = a * b;
  CHECK(y.dtype() == f32);
  y.backward(random_reference({2, 3}, 4).tensor(f32, test_device()));
  CHECK(a.grad().dtype() == bf16);
  CHECK(b.grad().dtype() == f32);
  CHECK(b.grad().shape() == Shape{3});
}

TEST_CASE("powers and remainders of all kinds of numbers, side by side") {
  const double infinity = std::numeric_limits<double>::infinity();
  const std::vector<double> kinds = {0,     -0.0, 1,       -1,          0.5,      2,    -2,
                                     -2.5,  3,    1e20,    -1e20,       0x1p-130, 1e-8, infinity,
                                     1.375, -7.5, 0x1p60,  -infinity,   100,      -100, 0x1p-20,
                                     0.1,   0.25, 65504.0, std::nan("")};
  const auto count = static_cast<int64_t>(kinds.size());
  Reference a({count, count}), b({count, count});
  for (size_t i = 0; i < a.values.size(); ++i) {
    a[i] = kinds[i / kinds.size()];
    b[i] = kinds[i % kinds.size()];
  }
  for (const DType dtype : {f64, f32, f16, bf16}) {
    const Tensor p = a.tensor(dtype, test_device()), q = b.tensor(dtype, test_device());
    const Reference of = Reference::of(p), by = Reference::of(q);
    Reference powers({count, count}), rests({count, count});
    for (size_t i = 0; i < a.values.size(); ++i) {
      powers[i] = std::pow(of[i], by[i]);
      const double rest = std::fmod(of[i], by[i]);
      rests[i] = rest != 0 && (rest < 0) != (by[i] < 0) ? rest + by[i] : rest;
    }
    const auto check = [&](const Tensor& y, const Reference& exact, double error) {
      const Reference actual = Reference::of(y);
      const Reference expected = Reference::of(exact.tensor(dtype, Device::cpu()));
      for (size_t i = 0; i < a.values.size(); ++i) {
        CAPTURE(of[i]);
        CAPTURE(by[i]);
        const double near = error * std::abs(expected[i]);
        CHECK((actual[i] == expected[i] || (std::isnan(actual[i]) && std::isnan(expected[i])) ||
               std::abs(actual[i] - expected[i]) <= near));
      }
    };
    check(pow(p, q), powers, 2 * epsilon(dtype));
    check(remainder(p, q), rests, epsilon(dtype));
  }
}

TEST_CASE("powers at the edge of their domain have finite gradients") {
  const Variable a(on_device(Tensor::from<double>({0, 0, -2, 3})), true);
  const Variable b(on_device(Tensor::from<double>({0, 2, 3, 0})), true);
  pow(a, b).backward(on_device(Tensor::from<double>({1, 1, 1, 1})));
  CHECK(Reference::of(a.grad()).values == std::vector<double>{0, 0, 12, 0});
  const auto exponent = Reference::of(b.grad()).values;
  CHECK((exponent[0] == 0 && exponent[1] == 0 && exponent[3] == doctest::Approx(std::log(3.0))));
}

TEST_CASE("arithmetic refuses shapes that do not broadcast") {
  const Tensor a = Tensor::empty({2, 3}, f32);
  CHECK_THROWS_WITH_AS(add(a, Tensor::empty({2}, f32)),
                       "add: shapes [2, 3] and [2] do not broadcast (3 against 2)", Error);
  CHECK_THROWS_WITH_AS(div_backward_b(a, a, Tensor::empty({3}, f32)),
                       "div_backward_b: dy of shape [3] for a result of shape [2, 3]", Error);
}

TEST_CASE("operands that lie across the result give the bits of dense ones") {
  const Shape shape{150, 130};
  const Reference r = random_reference(shape, 1), across = random_reference({130, 150}, 2);
  for (const DType dtype : {f64, f32, f16, bf16})
    for (const DType other : {f32, bf16, i64}) {
      const Tensor x = r.tensor(dtype, test_device());
      const Tensor turned = across.tensor(other, test_device()).transpose(0, 1);
      CHECK(same_bits(add(x, turned), add(x, clone(turned))));
      CHECK(same_bits(sub(turned, x), sub(clone(turned), x)));
    }
}
