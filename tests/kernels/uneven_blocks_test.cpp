// Blocks with another height than width: attention and the layout itself against dense masks.
#include <bs/autograd/sparse_attention.h>
#include <bs/lib/uneven_blocks.h>
#include <bs/tests/kernels/sparse_attention_reference.h>
#include <doctest/doctest.h>

using namespace bs;
using namespace bs::test;

namespace {

/// About half of the blocks, and an empty row where there are several.
Reference random_blocks(const Shape& shape, uint64_t seed) {
  Reference r = random_reference(shape, seed);
  for (double& x : r.values) x = x > 0 ? 1 : 0;
  if (shape[1] > 1)
    for (int64_t j = 0; j < shape[2]; ++j) r.at({0, 1, j}) = 0;
  return r;
}

}  // namespace

TEST_CASE("layout of uneven blocks: each element as in the mask") {
  for (const int rows : {8, 16, 32, 64, 128})
    for (const int cols : {8, 16, 32, 64, 128}) {
      CAPTURE(rows);
      CAPTURE(cols);
      const Reference mask = random_blocks({2, 3, 4}, static_cast<uint64_t>(rows + 3 * cols));
      const LayoutPtr layout =
          layout_of_uneven_blocks(mask.tensor(boolean, Device::cpu()), rows, cols);
      CHECK(layout->block() == std::min(rows, cols));
      CHECK(layout->height() == 3 * rows);
      CHECK(layout->width() == 4 * cols);
      const int side = layout->block();
      for (int h = 0; h < 2; ++h)
        for (int i = 0; i < layout->rows(); ++i)
          for (int j = 0; j < layout->cols(); ++j)
            REQUIRE(layout->contains(h, i, j) ==
                    (mask.at({h, i * side / rows, j * side / cols}) != 0));
    }
  const Tensor one = random_blocks({1, 2, 2}, 5).tensor(f32, Device::cpu());
  CHECK(*layout_of_uneven_blocks(one, 32, 32) == *Layout::from_mask(one, 32));
  CHECK(layout_of_uneven_blocks(Tensor::empty({0, 3}, boolean), 64, 8)->nnz() == 0);
  CHECK_THROWS_WITH_AS(layout_of_uneven_blocks(one, 64, 24),
                       "layout_of_uneven_blocks: blocks of 64 x 24, whose sides are not both 8, "
                       "16, 32, 64 or 128",
                       Error);
}

TEST_CASE("sparse_attention: blocks unequal for queries and keys") {
  struct Case {
    int rows, cols;
    int64_t heads;
  };
  for (const Case& c : {Case{16, 8, 2}, Case{8, 32, 1}, Case{64, 16, 1}, Case{32, 64, 1}}) {
    CAPTURE(c.rows);
    CAPTURE(c.cols);
    const Reference mask = random_blocks({c.heads, 2, 2}, static_cast<uint64_t>(c.rows));
    const Pattern pattern{
        layout_of_uneven_blocks(mask.tensor(boolean, Device::cpu()), c.rows, c.cols), c.rows == 16};
    Visible visible{1, 2, int64_t{2} * c.rows, int64_t{2} * c.cols, {}};
    for (int64_t h = 0; h < 2; ++h)
      for (int64_t i = 0; i < visible.queries; ++i)
        for (int64_t j = 0; j < visible.keys; ++j)
          visible.at.push_back(mask.at({h % c.heads, i / c.rows, j / c.cols}) != 0 &&
                               !(pattern.causal && j > i));
    check_op(
        {.name = "uneven blocks",
         .inputs = {{1, 2, visible.queries, 8}, {1, 2, visible.keys, 8}, {1, 2, visible.keys, 8}},
         .op =
             [&](const Variables& v) {
               return sparse_attention(v[0], v[1], v[2], pattern.layout, pattern.options());
             },
         .reference = [&](const References& in) { return attend(in, pattern, visible); },
         .steps = 32});
  }
}
