#include <bs/autograd/softmax.h>
#include <bs/kernels/softmax.h>
#include <bs/tests/support/op_case.h>
#include <doctest/doctest.h>

using namespace bs;
using namespace bs::test;

namespace {
Reference softmax_reference(const References& in) {
  Reference y = in[0];
  const int64_t n = y.shape.back();
  for (size_t row = 0; row * static_cast<size_t>(n) < y.values.size(); ++row) {
    double* x = &y.values[row * static_cast<size_t>(n)];
    double sum = 0;
    for (int64_t i = 0; i < n; ++i) sum += std::exp(x[i]);
    for (int64_t i = 0; i < n; ++i) x[i] = std::exp(x[i]) / sum;
  }
  return y;
}
}  // namespace

TEST_CASE("softmax") {
  for (const Shape& shape :
       {Shape{3, 5}, Shape{1, 1}, Shape{2, 3, 130}, Shape{0, 4}, Shape{7, 1025}})
    check_op({.name = "softmax",
              .inputs = {shape},
              .op = [](const Variables& v) { return softmax(v[0]); },
              .reference = softmax_reference});
}

TEST_CASE("softmax refuses what it cannot do") {
  CHECK_THROWS_WITH_AS(softmax(Tensor::empty({}, f32)), "softmax: a scalar has no axis", Error);
  CHECK_THROWS_WITH_AS(softmax(Tensor::empty({2, 2}, i32)),
                       "softmax: dtype i32 is not supported; expected f64, f32, f16 or bf16",
                       Error);
}
