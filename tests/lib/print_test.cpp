#include <bs/lib/print.h>
#include <bs/lib/tensor_from.h>
#include <doctest/doctest.h>

#include <sstream>

using namespace bs;

TEST_CASE("print: shapes, dtypes and devices go to streams") {
  std::ostringstream out;
  out << Shape{2, 3} << ' ' << f32 << ' ' << Device::cuda(1);
  CHECK(out.str() == "[2, 3] f32 cuda:1");
}

TEST_CASE("tensor: values of a container") {
  const std::vector<float> values = {1, 2, 3, 4};
  CHECK(tensor(values).shape() == Shape{4});
  CHECK(tensor(values).dtype() == f32);
  const Tensor matrix = tensor(values, {2, 2});
  CHECK(matrix.select(0, 1).select(0, 0).item() == 3);
  CHECK(matrix.data<float>() != values.data());
  CHECK(tensor({int64_t{7}}).dtype() == i64);
  CHECK(tensor({1.0, 2.0}, {2, 1}).shape() == Shape{2, 1});
  CHECK(tensor(std::vector<double>()).numel() == 0);
  CHECK_THROWS_WITH_AS(tensor(values, {3}), "tensor: 4 values for shape [3]", Error);
}
