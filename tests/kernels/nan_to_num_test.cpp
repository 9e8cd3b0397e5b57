#include <bs/autograd/binary.h>
#include <bs/autograd/nan_to_num.h>
#include <bs/autograd/reduce.h>
#include <bs/kernels/fill.h>
#include <bs/tests/support/devices.h>
#include <bs/tests/support/op_case.h>
#include <doctest/doctest.h>

#include <limits>

using namespace bs;
using namespace bs::test;

namespace {
constexpr double nan = std::numeric_limits<double>::quiet_NaN();
constexpr double infinity = std::numeric_limits<double>::infinity();

Reference sample() {
  Reference x({2, 3});
  x.values = {1.5, nan, infinity, -infinity, -0.25, 0};
  return x;
}
}  // namespace

TEST_CASE("nan_to_num: the largest numbers of each dtype, or those asked for") {
  const std::pair<DType, double> dtypes[] = {{f64, std::numeric_limits<double>::max()},
                                             {f32, std::numeric_limits<float>::max()},
                                             {f16, 65504},
                                             {bf16, 0x1.fep127}};
  for (const auto& [dtype, most] : dtypes) {
    const Tensor x = sample().tensor(dtype, test_device());
    const Tensor y = nan_to_num(x);
    CHECK(y.dtype() == dtype);
    CHECK(Reference::of(y).values == std::vector<double>{1.5, 0, most, -most, -0.25, 0});
    CHECK(Reference::of(nan_to_num(x, 2, 4, -8)).values ==
          std::vector<double>{1.5, 2, 4, -8, -0.25, 0});
    CHECK(Reference::of(nan_to_num(x.transpose(0, 1), 2, infinity, -8)).values ==
          std::vector<double>{1.5, -8, 2, -0.25, most, 0});
    const Tensor ends = full({1}, most, dtype, test_device());
    CHECK(Reference::of(nan_to_num(ends)).values == std::vector<double>{most});
  }
}

TEST_CASE("nan_to_num: gradients pass where nothing was replaced") {
  check_op({.name = "nan_to_num",
            .inputs = {{3, 5}},
            .op = [](const Variables& v) { return nan_to_num(v[0]); },
            .reference = [](const References& in) { return in[0]; }});
  const Variable x(sample().tensor(f64, test_device()), true);
  for (const double replaced : {infinity, 4.0}) {
    x.zero_grad();
    sum(nan_to_num(x, 1, replaced, -replaced) * 3).backward();
    CHECK(Reference::of(x.grad()).values == std::vector<double>{3, 0, 0, 0, 3, 3});
  }
}

TEST_CASE("nan_to_num: integers and nothing stay") {
  const Tensor x = full({3}, 7, i64, test_device());
  CHECK(nan_to_num(x).shares_storage(x));
  CHECK(nan_to_num(zeros({0}, f32, test_device())).numel() == 0);
}
