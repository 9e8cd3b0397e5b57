#include <bs/lib/tensor.h>
#include <bs/tests/support/devices.h>
#include <bs/tests/support/reference.h>
#include <doctest/doctest.h>

#include <limits>
#include <sstream>

using namespace bs;
using namespace bs::test;

namespace {

const std::string where = to_string(test_device()) + ")";

Tensor tensor(const Shape& shape, std::vector<double> values, DType dtype = f32) {
  Reference r(shape);
  r.values = std::move(values);
  return r.tensor(dtype, test_device());
}

Tensor counting(const Shape& shape, DType dtype) {
  Reference r(shape);
  for (size_t i = 0; i < r.values.size(); ++i) r[i] = static_cast<double>(i);
  return r.tensor(dtype, test_device());
}

}  // namespace

// The numbers below are laid out as PyTorch 2 prints them.

TEST_CASE("tensor prints its values in brackets") {
  CHECK(to_string(tensor({2, 3}, {1, 2.5, -3, 0, 1.0 / 3, 100})) ==
        "Tensor([[  1.0000,   2.5000,  -3.0000],\n"
        "        [  0.0000,   0.3333, 100.0000]], f32 [2, 3] " +
            where);
  CHECK(to_string(tensor({}, {3.14159})) == "Tensor(3.1416, f32 [] " + where);
  CHECK(to_string(tensor({1}, {7})) == "Tensor([7.], f32 [1] " + where);
  CHECK(to_string(tensor({0, 3}, {})) == "Tensor([], f32 [0, 3] " + where);
  CHECK(to_string(Tensor()) == "Tensor(undefined)");
  CHECK(to_string(counting({2, 2, 2}, i64)) ==
        "Tensor([[[0, 1],\n"
        "         [2, 3]],\n"
        "\n"
        "        [[4, 5],\n"
        "         [6, 7]]], i64 [2, 2, 2] " +
            where);
  CHECK(to_string(counting({2, 1, 1, 2}, i64)) ==
        "Tensor([[[[0, 1]]],\n"
        "\n"
        "\n"
        "        [[[2, 3]]]], i64 [2, 1, 1, 2] " +
            where);
  std::ostringstream out;
  out << tensor({1}, {7});
  CHECK(out.str() == to_string(tensor({1}, {7})));
}

TEST_CASE("tensor prints every dtype") {
  CHECK(to_string(tensor({3}, {1, 0, 1}, boolean)) ==
        "Tensor([ true, false,  true], bool [3] " + where);
  CHECK(to_string(tensor({3}, {1, 20, 255}, u8)) == "Tensor([  1,  20, 255], u8 [3] " + where);
  CHECK(to_string(tensor({2}, {-1, 20}, i32)) == "Tensor([-1, 20], i32 [2] " + where);
  CHECK(to_string(Tensor::from<int64_t>({std::numeric_limits<int64_t>::min(), 9})) ==
        "Tensor([-9223372036854775808,                    9], i64 [2] cpu)");
  CHECK(to_string(tensor({2}, {0.1, 2}, f16)) == "Tensor([0.1000, 2.0000], f16 [2] " + where);
  CHECK(to_string(tensor({2}, {0.1, 2}, bf16)) == "Tensor([0.1001, 2.0000], bf16 [2] " + where);
  CHECK(to_string(tensor({2}, {0.1, 2}, f64)) == "Tensor([0.1000, 2.0000], f64 [2] " + where);
}

TEST_CASE("tensor prints numbers of all magnitudes") {
  CHECK(to_string(tensor({3}, {1, -20, 0})) == "Tensor([  1., -20.,   0.], f32 [3] " + where);
  CHECK(to_string(tensor({2}, {0, 0})) == "Tensor([0., 0.], f32 [2] " + where);
  CHECK(to_string(tensor({2}, {1e-5, 1e-5})) ==
        "Tensor([1.0000e-05, 1.0000e-05], f32 [2] " + where);
  CHECK(to_string(tensor({2}, {0.5, 1000})) == "Tensor([5.0000e-01, 1.0000e+03], f32 [2] " + where);
  CHECK(to_string(tensor({2}, {1, 2e8})) == "Tensor([1.0000e+00, 2.0000e+08], f32 [2] " + where);
  const double inf = std::numeric_limits<double>::infinity();
  CHECK(to_string(tensor({4}, {inf, -inf, std::nan(""), 1})) ==
        "Tensor([ inf, -inf,  nan,   1.], f32 [4] " + where);
  CHECK(to_string(tensor({2}, {std::nan(""), 1.5})) == "Tensor([   nan, 1.5000], f32 [2] " + where);
}

TEST_CASE("tensor prints through strides") {
  const Tensor x = counting({2, 3}, i32);
  CHECK(to_string(x.transpose(0, 1)) ==
        "Tensor([[0, 3],\n        [1, 4],\n        [2, 5]], i32 [3, 2] " + where);
  CHECK(to_string(x.slice(1, 0, 3, 2)) == "Tensor([[0, 2],\n        [3, 5]], i32 [2, 2] " + where);
  CHECK(to_string(x.select(1, 1)) == "Tensor([1, 4], i32 [2] " + where);
  CHECK(to_string(x.select(0, 1).slice(0, 1, 2).expand({3})) ==
        "Tensor([4, 4, 4], i32 [3] " + where);
}

TEST_CASE("tensor wraps long rows") {
  CHECK(to_string(counting({30}, i64)) ==
        "Tensor([ 0,  1,  2,  3,  4,  5,  6,  7,  8,  9, 10, 11, 12, 13, 14, 15, 16, 17,\n"
        "        18, 19, 20, 21, 22, 23, 24, 25, 26, 27, 28, 29], i64 [30] " +
            where);
}

TEST_CASE("tensor leaves out the middle of long axes") {
  CHECK(to_string(counting({1001}, i64)) ==
        "Tensor([   0,    1,    2, ...,  998,  999, 1000], i64 [1001] " + where);
  CHECK(to_string(counting({300, 4}, i64)) ==
        "Tensor([[   0,    1,    2,    3],\n"
        "        [   4,    5,    6,    7],\n"
        "        [   8,    9,   10,   11],\n"
        "        ...,\n"
        "        [1188, 1189, 1190, 1191],\n"
        "        [1192, 1193, 1194, 1195],\n"
        "        [1196, 1197, 1198, 1199]], i64 [300, 4] " +
            where);
  // What is left out does not count for the width.
  Reference r({2000});
  r[1000] = 1e6;
  CHECK(to_string(r.tensor(f32, test_device())) ==
        "Tensor([0., 0., 0., ..., 0., 0., 0.], f32 [2000] " + where);
  const std::string text = to_string(counting({10, 20, 30}, i64).transpose(0, 2));
  CHECK(text.starts_with("Tensor([[[   0,  600, 1200, ..., 4200, 4800, 5400],\n"));
  CHECK(text.find("...,\n\n        [[  27") != std::string::npos);
}
