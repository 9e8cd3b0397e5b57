// The code of docs/block_sparse.md; see snippets_test.cpp.
#include <bs/nn.h>
#include <doctest/doctest.h>

using namespace bs;

TEST_CASE("block sparse: the three products, and their gradients") {
  // Of a matrix of 256 x 512 numbers, every fourth block of 32 x 32, at random.
  const LayoutPtr layout =
      patterns::random({.rows = 8, .cols = 16, .block = 32}, {.density = 0.25, .seed = 1});
  const Variable a(randn({256, 64}), true), b(randn({64, 512}), true);
  const SparseVariable s = sdd(a, b, layout);   // the blocks of a b: sparse = dense x dense
  const Variable c = dsd(s, randn({512, 10}));  // dense = sparse x dense
  const Variable d = dds(randn({10, 256}), s);  // dense = dense x sparse
  (sum(c) + sum(d)).backward();                 // a.grad(), b.grad()

  CHECK(s.values.shape() == Shape{32, 32, 32});
  CHECK(c.shape() == Shape{256, 10});
  CHECK(d.shape() == Shape{10, 512});
  CHECK(a.grad().shape() == a.shape());

  const Tensor dense = to_dense(s.data());               // zeros where there is no block
  const SparseTensor again = to_sparse(dense, layout);   // its blocks
  const Tensor turned = dsd(again, dense, {.a = true});  // of the transpose, without a copy

  CHECK(equal(again.values, s.values.data()));
  CHECK(turned.shape() == Shape{512, 512});
}
