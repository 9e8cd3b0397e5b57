#include <bs/autograd/block_float.h>
#include <bs/tests/support/devices.h>
#include <bs/tests/support/op_case.h>
#include <doctest/doctest.h>

#include <limits>

using namespace bs;
using namespace bs::test;

namespace {
/// Numbers of a block are counted in steps of the largest one's exponent.
Reference rounded(const Reference& x, int64_t block, int bits) {
  Reference y = x;
  const int64_t n = x.shape.back();
  for (int64_t row = 0; row < static_cast<int64_t>(x.values.size()) / n; ++row)
    for (int64_t first = 0; first < n; first += block) {
      double largest = 0;
      const auto each = [&](auto f) {
        for (int64_t i = first; i < std::min(n, first + block); ++i)
          f(y[static_cast<size_t>(row * n + i)]);
      };
      each([&](double v) { largest = std::max(largest, std::abs(v)); });
      if (largest == 0) continue;
      double power = 1;  // at most the largest magnitude, and more than half of it
      while (power > largest) power /= 2;
      while (2 * power <= largest) power *= 2;
      const double step = power / std::pow(2, bits - 2);
      each([&](double& v) {
        double count = std::floor(v / step);
        const double rest = v / step - count;
        if (rest > 0.5 || (rest == 0.5 && std::fmod(count, 2) != 0)) count += 1;
        v = step * std::min(std::pow(2, bits - 1) - 1, std::max(-std::pow(2, bits - 1), count));
      });
    }
  return y;
}
}  // namespace

TEST_CASE("block_float rounds to multiples of a block's step") {
  for (const auto& [shape, block, bits] : {std::tuple{Shape{3, 16}, 8, 8},
                                           {Shape{5}, 8, 8},
                                           {Shape{2, 3, 21}, 8, 4},
                                           {Shape{1}, 1, 2},
                                           {Shape{70, 40}, 8, 8},
                                           {Shape{3, 80}, 32, 6},
                                           {Shape{2, 2000}, 640, 8},
                                           {Shape{9, 24}, 12, 24},
                                           {Shape{0, 8}, 8, 8},
                                           {Shape{4, 33}, 32, 12}})
    for (const DType dtype : {f64, f32, f16, bf16}) {
      const Reference x =
          Reference::of(random_reference(shape, 3, -4, 4).tensor(dtype, test_device()));
      const Tensor y = block_float(x.tensor(dtype, test_device()), {.block = block, .bits = bits});
      const Reference expected =
          Reference::of(rounded(x, block, bits).tensor(dtype, test_device()));
      CHECK(Reference::of(y).values == expected.values);
    }
}

TEST_CASE("block_float: bounds, ties, zeros and what is not finite") {
  constexpr double infinity = std::numeric_limits<double>::infinity();
  const auto of = [](std::initializer_list<double> values, BlockFloat format) {
    const Tensor x = Tensor::from<double>(values).to(test_device());
    return Reference::of(block_float(x, format)).values;
  };
  CHECK(of({1, 0.5 / 64, 1.5 / 64, 2.5 / 64}, {.block = 4}) ==
        std::vector<double>{1, 0, 2.0 / 64, 2.0 / 64});
  // 2 - 1/1024 would round to 128 steps, of which there are 127; -2 is not below the lowest.
  CHECK(of({2 - 1.0 / 1024, -2 + 1.0 / 1024}, {.block = 2}) == std::vector<double>{127.0 / 64, -2});
  CHECK(of({0, 0, 3}, {.block = 2}) == std::vector<double>{0, 0, 3});
  CHECK(of({infinity, 0.3, 0.3}, {.block = 2})[1] == 0.3);
  CHECK(std::isnan(of({std::nan(""), 0.3}, {.block = 2})[0]));
}

TEST_CASE("block_float: magnitudes at both ends of a dtype") {
  for (const DType dtype : {f64, f32, f16, bf16})
    for (const double power : dtype == f64   ? std::vector<double>{0x1p-1040, 0x1p-1020, 0x1p1022}
                              : dtype == f16 ? std::vector<double>{0x1p-23, 0x1p-13, 0x1p14}
                                             : std::vector<double>{0x1p-132, 0x1p-126, 0x1p126})
      for (const int bits : {2, 8, 24}) {
        Reference x = random_reference({5, 32}, 4, -1.9, 1.9);
        for (size_t i = 0; i < x.values.size(); ++i) x[i] *= i % 3 == 0 ? 1e-3 * power : power;
        x = Reference::of(x.tensor(dtype, test_device()));
        const Tensor y = block_float(x.tensor(dtype, test_device()), {.block = 16, .bits = bits});
        const Reference expected = Reference::of(rounded(x, 16, bits).tensor(dtype, test_device()));
        CHECK(Reference::of(y).values == expected.values);
      }
}

TEST_CASE("block_float and round_to let gradients through") {
  const Variable x(random_reference({4, 9}, 1).tensor(f32, test_device()), true);
  const Tensor dy = random_reference({4, 9}, 2).tensor(f32, test_device());
  const Variable coarse = round_to(x, bf16);
  CHECK(Reference::of(coarse.data()).values ==
        Reference::of(random_reference({4, 9}, 1).tensor(bf16, test_device())).values);
  block_float(coarse).backward(dy);
  CHECK(Reference::of(x.grad()).values == Reference::of(dy).values);
}

TEST_CASE("block_float refuses what it cannot cut") {
  CHECK_THROWS_WITH_AS(block_float(Tensor::empty({4}, f32), {.block = 0}),
                       "block_float: blocks of 0 numbers of 8 bits", Error);
  CHECK_THROWS_WITH_AS(block_float(Tensor::empty({}, f32)),
                       "block_float: a tensor of rank 0 has no blocks", Error);
}
