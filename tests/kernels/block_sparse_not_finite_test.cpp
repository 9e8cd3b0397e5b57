// An infinity or NaN of the dense operand reaches the rows whose blocks meet it, and no others.
#include <bs/kernels/block_sparse_matmul.h>
#include <bs/kernels/copy.h>
#include <bs/kernels/fill.h>
#include <bs/kernels/math_mode.h>
#include <bs/kernels/random.h>
#include <bs/kernels/settings.h>
#include <bs/lib/patterns.h>
#include <bs/tests/support/devices.h>
#include <bs/tests/support/reference.h>
#include <doctest/doctest.h>

#include <cmath>
#include <limits>
#include <vector>

using namespace bs;
using namespace bs::test;

namespace {

struct Case {
  int64_t rows, depth, cols;
  int block;
  double density;
};

/// Sets one number of a matrix.
void put(const Tensor& x, int64_t row, int64_t col, double value) {
  copy(full({1, 1}, value, x.dtype(), x.device()), x.slice(0, row, row + 1).slice(1, col, col + 1));
}

/// Numbers that differ between products with and without `bad` at [k, j] of the dense operand,
/// beside those that it must reach; and those that it must and does not.
size_t wrong_numbers(const Case& c, DType dtype, bool left, bool transposed, bool by_columns,
                     double bad) {
  const Device device = test_device();
  const auto side = [&](int64_t extent) { return static_cast<int>(extent / c.block); };
  const int down = transposed ? side(c.depth) : side(c.rows);
  const int across = transposed ? side(c.rows) : side(c.depth);
  const LayoutPtr layout = patterns::random({.rows = down, .cols = across, .block = c.block},
                                            {.density = c.density, .seed = 3});
  const Tensor values = full({layout->nnz(), c.block, c.block}, 1, dtype, device);
  // C = op(S) B, or its transpose.
  const Shape shape = by_columns ? Shape{c.cols, c.depth} : Shape{c.depth, c.cols};
  const Tensor b = randint(-1, 2, shape, dtype, device);
  const int64_t k = c.depth / 2 + 1, j = c.cols - 1;
  const auto product = [&](double value) {
    put(b, by_columns ? j : k, by_columns ? k : j, value);
    return Reference::of(left ? dds(b, {layout, values}, {.a = !by_columns, .b = !transposed})
                              : dsd({layout, values}, b, {.a = transposed, .b = by_columns}));
  };
  const Reference clean = product(0), got = product(bad);
  size_t wrong = 0;
  for (int64_t row = 0; row < c.rows; ++row) {
    const int own = static_cast<int>(row / c.block), of_k = static_cast<int>(k / c.block);
    const bool meets = layout->contains(0, transposed ? of_k : own, transposed ? own : of_k);
    for (int64_t col = 0; col < c.cols; ++col) {
      const auto at = static_cast<size_t>(left ? col * c.rows + row : row * c.cols + col);
      wrong += meets && col == j ? std::isfinite(got[at]) : got[at] != clean[at];
    }
  }
  return wrong;
}

}  // namespace

TEST_CASE("block-sparse products: what is not finite reaches no row that lacks its block") {
  const SettingsGuard always(
      {.portable_products = settings().portable_products, .gathered_products = true});
  constexpr double infinity = std::numeric_limits<double>::infinity();
  std::vector<Case> cases;
  for (const int block : {8, 16, 32, 64, 128}) cases.push_back({512, 768, 264, block, .4});
  // So dense and large that a dense product would be the faster one.
  if (test_device().is_cuda())
    for (const int block : {8, 16, 64}) cases.push_back({2048, 2048, 4096, block, .95});
  for (const Case& c : cases)
    for (const DType dtype : {f16, bf16, f32, f64})
      for (const bool transposed : {false, true})
        for (const bool by_columns : {false, true}) {
          if (c.rows > 1000 && (dtype == f64 || transposed != by_columns)) continue;
          CAPTURE(c.block);
          CAPTURE(c.density);
          CAPTURE(to_string(dtype));
          CAPTURE(transposed);
          CAPTURE(by_columns);
          CHECK(wrong_numbers(c, dtype, false, transposed, by_columns, infinity) == 0);
          CHECK(wrong_numbers(c, dtype, true, transposed, by_columns, std::nan("")) == 0);
          if (dtype != f32) continue;
          const TF32Guard rounded;
          CHECK(wrong_numbers(c, dtype, false, transposed, by_columns, -infinity) == 0);
        }
}
