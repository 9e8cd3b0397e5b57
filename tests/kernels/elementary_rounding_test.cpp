#include <bs/kernels/binary.h>
#include <bs/kernels/elementary.h>
#include <bs/kernels/rectifier.h>
#include <bs/kernels/rounding.h>
#include <bs/kernels/unary.h>
#include <bs/lib/half.h>
#include <bs/tests/support/devices.h>
#include <bs/tests/support/op_case.h>
#include <doctest/doctest.h>

#include <bit>
#include <cmath>
#include <limits>
#include <string>
#include <vector>

using namespace bs;
using namespace bs::test;

namespace {

/// Every number of 16 bits.
template <class T>
Tensor all_numbers() {
  std::vector<T> all(1 << 16);
  for (size_t i = 0; i < all.size(); ++i) all[i] = std::bit_cast<T>(static_cast<uint16_t>(i));
  return Tensor::from<T>(all, {1 << 16});
}

/// Whether y is what `exact` rounds to, or an eighth of a unit in the last place farther from it.
bool rounds_to(double y, double exact, DType dtype) {
  if (std::isnan(exact)) return std::isnan(y);
  const double largest = dtype == f16 ? 65504 : 3.38953138925153547590e38;
  const double smallest = dtype == f16 ? 0x1p-24 : 0x1p-133;
  if (std::abs(exact) > largest)  // an infinity, or the last number before it
    return std::signbit(y) == std::signbit(exact) && std::abs(y) >= largest;
  return std::abs(y - exact) <= 0.625 * epsilon(dtype) * std::abs(exact) + smallest;
}

}  // namespace

TEST_CASE("elementary functions of every number of 16 bits") {
  struct Case {
    const char* name;
    Tensor (*op)(const Tensor&);
    double (*exact)(double);
  };
  const Case cases[] = {{"sin", sin, std::sin},
                        {"cos", cos, std::cos},
                        {"tan", tan, std::tan},
                        {"erf", erf, std::erf},
                        {"log1p", log1p, std::log1p},
                        {"expm1", expm1, std::expm1},
                        {"log", log, std::log},
                        {"sqrt", sqrt, std::sqrt},
                        {"reciprocal", reciprocal, [](double x) { return 1 / x; }},
                        {"elu", [](const Tensor& x) { return elu(x, 1); },
                         [](double x) { return x > 0 ? x : std::expm1(x); }},
                        {"clamp", [](const Tensor& x) { return clamp(x, -2, 3); },
                         [](double x) { return x < -2  ? -2.0
                                               : x > 3 ? 3.0
                                                       : x; }}};
  for (const Tensor& numbers : {all_numbers<bfloat16>(), all_numbers<half>()}) {
    const Tensor x = numbers.to(test_device());
    const Reference in = Reference::of(numbers);
    for (const Case& c : cases) {
      const Reference y = Reference::of(c.op(x));
      int wrong = 0;
      double first = 0;
      for (size_t i = 0; i < in.values.size(); ++i) {
        if (rounds_to(y[i], c.exact(in[i]), x.dtype())) continue;
        if (wrong++ == 0) first = in[i];
      }
      const std::string name = std::string(c.name) + " in " + to_string(x.dtype());
      CAPTURE(name);
      CAPTURE(first);
      CHECK(wrong == 0);
    }
  }
}

TEST_CASE("powers and remainders of numbers of 16 bits") {
  const double inf = std::numeric_limits<double>::infinity();
  const double nan = std::numeric_limits<double>::quiet_NaN();
  const std::vector<double> special = {0,   -0.0, 1,    -1,  2,    -2,    3,     -3,   0.5,   -0.5,
                                       inf, -inf, nan,  1.5, -1.5, 100,   -100,  1e-3, -1e-3, 1e4,
                                       7,   -7,   0.25, 2.5, -2.5, 1.125, 0.875, 33,   -33,   6e4};
  for (const DType dtype : {bf16, f16}) {
    const Shape shape = {static_cast<int64_t>(special.size()) + 500};
    Reference a = random_reference({shape[0], 1}, 1, -20, 20);
    Reference b = random_reference({1, shape[0]}, 2, -8, 8);
    for (size_t i = 0; i < special.size(); ++i) a[i] = b[i] = special[i];
    for (size_t i = special.size(); i < a.values.size(); i += 2) a[i] = std::abs(a[i]);
    const Tensor ta = a.tensor(dtype, test_device()), tb = b.tensor(dtype, test_device());
    a = Reference::of(ta);
    b = Reference::of(tb);
    const Reference powers = Reference::of(pow(ta, tb)), rests = Reference::of(remainder(ta, tb));
    int wrong_powers = 0, wrong_rests = 0;
    double of_a = 0, of_b = 0;
    for (size_t i = 0; i < a.values.size(); ++i)
      for (size_t j = 0; j < b.values.size(); ++j) {
        const size_t at = i * b.values.size() + j;
        const bool right = rounds_to(powers[at], std::pow(a[i], b[j]), dtype);
        double rest = std::fmod(a[i], b[j]);
        if (rest != 0 && (rest < 0) != (b[j] < 0)) rest += b[j];
        const bool rest_right = rounds_to(rests[at], rest, dtype);
        wrong_powers += !right;
        wrong_rests += !rest_right;
        if (right && rest_right) continue;
        of_a = a[i];
        of_b = b[j];
      }
    CAPTURE(of_a);
    CAPTURE(of_b);
    CHECK(wrong_powers == 0);
    CHECK(wrong_rests == 0);
  }
}
