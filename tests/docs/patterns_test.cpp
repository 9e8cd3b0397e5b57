// The code of docs/patterns.md; see snippets_test.cpp.
#include <bs/nn.h>
#include <doctest/doctest.h>

#include <cmath>
#include <vector>

using namespace bs;

TEST_CASE("patterns: layouts of your own") {
  // Blocks of 32 x 32; the mask has one element a block.
  const Tensor mask = Tensor::from<int32_t>({1, 0, 0, 1, 1, 0, 0, 1, 1}, {3, 3});
  const LayoutPtr layout = Layout::from_mask(mask, 32);
  CHECK(layout->nnz() == 5);
  CHECK(layout->height() == 96);
  CHECK(layout->contains(0, 2, 1));
}

TEST_CASE("patterns: a pattern for each head") {
  const patterns::Size size{.rows = 16, .block = 32};
  const LayoutPtr layout = patterns::stack_heads(std::vector<LayoutPtr>{
      patterns::sliding_window(size, {.window_blocks = 5}),
      patterns::strided(size, {.stride = 4}),
  });
  CHECK(layout->heads() == 2);
}

TEST_CASE("patterns: a layout for every length") {
  const nn::Pattern pattern = [](const patterns::Size& size) {
    return patterns::bigbird(size, {.random_blocks = 2, .causal = true});
  };
  CHECK(pattern({.rows = 8})->rows() == 8);
}

TEST_CASE("patterns: attention from its parts") {
  const LayoutPtr layout = patterns::longformer({.rows = 8, .block = 16});
  const Shape shape{2, 128, 32};  // batch, positions, features
  const Variable q(randn(shape), true), k(randn(shape), true), v(randn(shape), true);

  const SparseVariable scores = sdd(q, k, layout, {.b = true});  // q k^T, where there are blocks
  const SparseVariable p = block_sparse_softmax(scores, {.scale = 1 / std::sqrt(32.0)});
  const Variable y = dsd(p, v);

  CHECK(y.shape() == shape);
  sum(y).backward();
  CHECK(q.grad().defined());
}

TEST_CASE("patterns: a sparse weight") {
  nn::BlockSparseLinear layer({.layout = patterns::random({.rows = 8, .cols = 4, .block = 32}),
                               .activation = Activation::gelu});
  const Variable y = layer.forward(randn({16, 128}));  // [16, 256]
  const Tensor dense = to_dense(layer.matrix().data());
  CHECK(y.shape() == Shape{16, 256});
  CHECK(dense.shape() == Shape{256, 128});
}
