#include <bs/autograd/anomaly.h>
#include <bs/autograd/binary.h>
#include <bs/autograd/reduce.h>
#include <bs/autograd/tape.h>
#include <bs/autograd/unary.h>
#include <doctest/doctest.h>

#include <limits>

using namespace bs;

TEST_CASE("anomaly: the operation that makes the first NaN is named") {
  const Variable x(Tensor::from<double>({1, 4, -1, -2}, {2, 2}), true);
  CHECK_NOTHROW(sqrt(x));  // nobody looks
  const DetectAnomaly detect;
  CHECK(detecting_anomaly());
  CHECK_THROWS_WITH_AS(
      sum(sqrt(x)),
      "anomaly: result 0 of sqrt: 2 of 4 elements of f64 [2, 2] are NaN, the first "
      "at [1, 0]; none of its inputs holds one",
      Error);
  const Variable bad(Tensor::from<double>({1, std::numeric_limits<double>::quiet_NaN()}));
  CHECK_THROWS_WITH_AS(add(Variable(Tensor::from<double>({1, 1})), bad),
                       doctest::Contains("the first at [1]; its input 1 held some"), Error);
}

TEST_CASE("anomaly: so is the backward that makes it") {
  const Variable x(Tensor::from<double>({0, 4}), true);
  const Variable zero(Tensor::from<double>({0, 0}));
  const DetectAnomaly detect;
  const Variable loss = sum(mul(sqrt(x), zero));  // 0 / (2 sqrt(0)) is no number
  CHECK_THROWS_WITH_AS(loss.backward(),
                       "anomaly: gradient of input 0 in the backward of sqrt: 1 of 2 elements of "
                       "f64 [2] are NaN, the first at [0]; the gradient that came in held none",
                       Error);
}

TEST_CASE("anomaly: infinities, whole numbers and empty tensors are none; the guard ends") {
  {
    const DetectAnomaly detect;
    const Variable x(Tensor::from<double>({0}), true);
    CHECK_NOTHROW(log(x));
    CHECK_NOTHROW(neg(Variable(Tensor::from<int64_t>({3}))));
    CHECK_NOTHROW(sqrt(Variable(Tensor::empty({0, 3}, f64), true)));
  }
  CHECK(!detecting_anomaly());
}
