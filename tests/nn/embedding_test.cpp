#include <bs/autograd/reduce.h>
#include <bs/nn/embedding.h>
#include <bs/tests/support/devices.h>
#include <bs/tests/support/reference.h>
#include <doctest/doctest.h>

using namespace bs;
using namespace bs::test;

TEST_CASE("nn::Embedding: looks up rows") {
  const nn::Embedding table({.rows = 3, .width = 2, .device = test_device()});
  CHECK(table.named_parameters()[0].name == "weight");
  const Reference w = Reference::of(table.weight.data());
  for (DType dtype : {i32, i64}) {
    Reference indices({2, 2});
    indices.values = {2, 0, 0, 1};
    const Variable y = table.forward(indices.tensor(dtype, test_device()));
    REQUIRE(y.shape() == Shape{2, 2, 2});
    const Reference r = Reference::of(y.data());
    for (size_t i = 0; i < 4; ++i)
      for (size_t j = 0; j < 2; ++j)
        CHECK(r[2 * i + j] == w[2 * static_cast<size_t>(indices[i]) + j]);
  }
}

TEST_CASE("nn::Embedding: the padding row is zero and stays so") {
  const nn::Embedding table({.rows = 3, .width = 2, .padding_index = 1, .device = test_device()});
  const Reference w = Reference::of(table.weight.data());
  CHECK(w[2] == 0);
  CHECK(w[3] == 0);
  CHECK(w[0] != 0);
  const Tensor indices = Tensor::from<int64_t>({1, 2, 2}).to(test_device());
  sum(table.forward(indices)).backward();
  CHECK(Reference::of(table.weight.grad()).values == std::vector<double>{0, 0, 0, 0, 2, 2});
}

TEST_CASE("nn::Embedding: errors") {
  CHECK_THROWS_WITH_AS(nn::Embedding({.rows = 0, .width = 2}), "embedding: a table of 0 rows of 2",
                       Error);
  CHECK_THROWS_WITH_AS(nn::Embedding({.rows = 3, .width = 2, .padding_index = 3}),
                       "embedding: padding index 3 of 3 rows", Error);
}
