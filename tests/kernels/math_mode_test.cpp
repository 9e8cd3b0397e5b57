#include <bs/autograd/lstm.h>
#include <bs/kernels/linear.h>
#include <bs/kernels/math_mode.h>
#include <bs/kernels/matmul.h>
#include <bs/tests/support/devices.h>
#include <bs/tests/support/op_case.h>
#include <doctest/doctest.h>

using namespace bs;
using namespace bs::test;

namespace {

/// Numbers that f32 and f64 have.
Tensor values(const Shape& shape, uint64_t seed, DType dtype, double range = 1) {
  const Tensor single = random_reference(shape, seed, -range, range).tensor(f32, Device::cpu());
  return Reference::of(single).tensor(dtype, test_device());
}

/// Largest difference to the same operation in f64, in units of the result's largest number.
template <class F>
double error_of(const F& f) {
  const Reference exact = Reference::of(f(f64)), actual = Reference::of(f(f32));
  double most = 0;
  for (size_t i = 0; i < exact.values.size(); ++i)
    most = std::max(most, std::abs(actual[i] - exact[i]));
  return most / largest(exact);
}

/// TF32 has 10 bits, so that sums of many rounded products are off by about 2^-11 of one.
template <class F>
void check_mode(const F& f) {
  const double exact = error_of(f);
  CHECK(exact < 1e-5);
  {
    const TF32Guard guard;
    CHECK(tf32_allowed());
    const double rounded = error_of(f);
    CHECK(rounded < 0x1p-9);
    CHECK((rounded > 4 * exact) == test_device().is_cuda());
    const TF32Guard off(false);
    CHECK(error_of(f) == exact);
  }
  CHECK_FALSE(tf32_allowed());
  CHECK(error_of(f) == exact);
}

}  // namespace

TEST_CASE("math mode: TF32 where it is allowed, and no longer") {
  check_mode([](DType dtype) {
    return matmul(values({64, 256}, 1, dtype), values({256, 64}, 2, dtype));
  });
  check_mode([](DType dtype) {
    return linear(values({64, 256}, 1, dtype), values({64, 256}, 2, dtype), values({64}, 3, dtype));
  });
}

TEST_CASE("math mode: an LSTM's steps are TF32 too, also when they run as a graph") {
  for (int turn = 0; turn < 3; ++turn)
    check_mode([](DType dtype) {
      const LSTMDirectionVariables d{.weights = {.ih = values({4 * 64, 64}, 1, dtype, 0.125),
                                                 .hh = values({4 * 64, 64}, 2, dtype, 0.125)}};
      return lstm(values({9, 32, 64}, 3, dtype), {&d, 1})[0].y.data();
    });
}
