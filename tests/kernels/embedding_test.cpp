#include <bs/autograd/embedding.h>
#include <bs/kernels/embedding.h>
#include <bs/kernels/fill.h>
#include <bs/tests/support/devices.h>
#include <bs/tests/support/op_case.h>
#include <doctest/doctest.h>

using namespace bs;
using namespace bs::test;

namespace {

Tensor random_indices(const Shape& shape, int64_t rows, DType dtype) {
  Reference r = random_reference(shape, 3, 0, static_cast<double>(rows));
  for (double& v : r.values) v = std::floor(v);
  return r.tensor(dtype, test_device());
}

}  // namespace

TEST_CASE("embedding") {
  for (DType index_dtype : {i64, i32})
    for (const Shape& shape : {Shape{2, 7}, Shape{}, Shape{0, 3}, Shape{70}, Shape{3, 1, 200}}) {
      const Tensor indices = random_indices(shape, 11, index_dtype);
      const Reference numbers = Reference::of(indices);
      check_op({.name = "embedding",
                .inputs = {{11, 24}},
                .op = [=](const Variables& v) { return embedding(v[0], indices); },
                .reference =
                    [=](const References& in) {
                      Shape y_shape = shape;
                      y_shape.push_back(24);
                      Reference y(y_shape);
                      for (size_t i = 0; i < y.values.size(); ++i)
                        y[i] = in[0][static_cast<size_t>(numbers[i / 24]) * 24 + i % 24];
                      return y;
                    }});
    }
}

TEST_CASE("embedding gives the padding row no gradient") {
  const Variable weight(ones({3, 2}, f32, test_device()), true);
  const Tensor indices = Tensor::from<int64_t>({2, 1, 1, 2, 2, 0}, {2, 3}).to(test_device());
  embedding(weight, indices, 1).backward(ones({2, 3, 2}, f32, test_device()));
  CHECK(Reference::of(weight.grad()).values == std::vector<double>{1, 1, 0, 0, 3, 3});
}

TEST_CASE("embedding takes views") {
  const Reference table = random_reference({5, 4}, 1);
  const Tensor weight = table.tensor(f32, test_device()).transpose(0, 1);
  const Tensor indices = Tensor::from<int32_t>({0, 3, 1, 2}, {2, 2}).to(test_device());
  const Reference y = Reference::of(embedding(weight, indices.transpose(0, 1)));
  const Reference w = Reference::of(weight);
  CHECK(y.shape == Shape{2, 2, 5});
  size_t at = 0;
  for (size_t row : {0, 1, 3, 2})
    for (size_t c = 0; c < 5; ++c) CHECK(y[at++] == w[row * 5 + c]);
}

TEST_CASE("embedding refuses what it cannot do") {
  const Tensor weight = Tensor::empty({3, 2}, f32);
  CHECK_THROWS_WITH_AS(embedding(Tensor::empty({3}, f32), Tensor::from<int64_t>({0})),
                       "embedding: weight [3] is not a matrix", Error);
  CHECK_THROWS_WITH_AS(embedding(Tensor::empty({3, 2}, i64), Tensor::from<int64_t>({0})),
                       "embedding: dtype i64 is not supported; expected f64, f32, f16 or bf16",
                       Error);
  CHECK_THROWS_WITH_AS(embedding(weight, Tensor::from<float>({0})),
                       "embedding: dtype f32 is not supported; expected i64 or i32", Error);
  CHECK_THROWS_WITH_AS(embedding(weight, Tensor::from<int64_t>({0, 1, 7})),
                       "embedding: index 7 at position 2 is outside [0, 3)", Error);
  CHECK_THROWS_WITH_AS(embedding_backward(weight, Tensor::from<int64_t>({0}), 3),
                       "embedding_backward: dy [3, 2] for indices [1]", Error);
  for (const int64_t row : {-2, 3}) {
    const Tensor indices = Tensor::from<int64_t>({0, 1, 2});
    CHECK_THROWS_WITH_AS(embedding(Variable(weight, true), indices, row),
                         format("embedding: a padding_index of {} among 3 rows", row).c_str(),
                         Error);
    CHECK_THROWS_WITH_AS(
        embedding_backward(weight, indices, 3, row),
        format("embedding_backward: a padding_index of {} among 3 rows", row).c_str(), Error);
  }
}
