// The block-sparse products over many random layouts and odd shapes, in whole numbers, which every
// right kernel gives exactly. The memory of all tensors is guarded and poisoned (tests/support).
#include <bs/kernels/block_sparse_matmul.h>
#include <bs/tests/support/devices.h>
#include <bs/tests/support/sparse_case.h>
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <random>

using namespace bs;
using namespace bs::test;

namespace {

using Random = std::mt19937;

int between(Random& random, int low, int high) {
  return low + static_cast<int>(random() % static_cast<unsigned>(high - low + 1));
}

/// Whole numbers from -1 to 1: sums of up to 256 products are exact in every dtype.
Reference whole(const Shape& shape, Random& random) {
  Reference r = random_reference(shape, random(), -1.5, 1.5);
  for (double& x : r.values) x = std::round(x);
  return r;
}

/// A matrix, or a batch of them, stored in one of the ways that a user may have it: in rows, in
/// columns, or as a part of wider rows that begins anywhere, with NaN around it.
Tensor stored(const Reference& r, DType dtype, Random& random) {
  const Device device = test_device();
  const int way = between(random, 0, 3);
  if (way == 0) {
    const int64_t rows = r.shape[-2], cols = r.shape[-1];
    Reference turned(flipped(r.shape, true));
    for (size_t i = 0; i < r.values.size(); ++i) {
      const auto at = static_cast<int64_t>(i), matrix = at / (rows * cols);
      const int64_t row = at / cols % rows, col = at % cols;
      turned.values[static_cast<size_t>((matrix * cols + col) * rows + row)] = r.values[i];
    }
    return turned.tensor(dtype, device).transpose(-1, -2);
  }
  if (way == 1) {
    const int64_t cols = r.shape[-1], before = between(random, 0, 9);
    Shape wide = r.shape;
    wide[-1] = before + cols + between(random, 0, 3);
    Reference around(wide);
    std::fill(around.values.begin(), around.values.end(), std::nan(""));
    for (size_t i = 0; i < r.values.size(); ++i) {
      const auto at = static_cast<int64_t>(i);
      around.values[static_cast<size_t>(at / cols * wide[-1] + before + at % cols)] = r.values[i];
    }
    return around.tensor(dtype, device).slice(-1, before, before + cols);
  }
  return r.tensor(dtype, device);
}

/// One of several kinds of pattern, of at most `most` blocks a side; any may be empty.
Mask random_mask(int block, int most, Random& random) {
  const int heads = between(random, 0, 3) == 0 ? between(random, 2, 3) : 1;
  const int rows = between(random, 1, most), cols = between(random, 1, most);
  const int kind = between(random, 0, 4);
  if (kind == 0) return Mask(heads, rows, cols, block, static_cast<uint8_t>(random() % 2));
  if (kind <= 2) {
    const double density = between(random, 1, 19) / 20.0;
    return Mask::random(heads, rows, cols, block, density, random());
  }
  Mask mask(heads, rows, cols, block);
  const int width = between(random, 0, 2), line = between(random, 0, rows - 1);
  for (int h = 0; h < heads; ++h)
    for (int r = 0; r < rows; ++r)
      for (int c = 0; c < cols; ++c)
        mask.at(h, r, c) = kind == 3 ? std::abs(r - c - h) <= width : r == line || c <= h;
  return mask;
}

/// How many elements differ, and where the first one does; NaN differs from everything.
void check_same(const char* what, const Tensor& got, const Reference& want) {
  CAPTURE(what);
  const Reference found = Reference::of(got);
  REQUIRE(found.shape == want.shape);
  size_t wrong = 0, first = 0;
  for (size_t i = want.values.size(); i-- > 0;)
    if (found[i] != want[i]) ++wrong, first = i;
  CAPTURE(first);
  REQUIRE(wrong == 0);
}

/// The three products of one layout, and the gradients of dsd, which are sdd's and dds' kernels
/// with the layout walked the other way.
void check_products(DType dtype, const Mask& mask, int64_t n, Transpose t, const Shape& batch,
                    Random& random) {
  const LayoutPtr layout = mask.layout();
  const auto dense = [&](int64_t rows, int64_t cols, bool turned) {
    return whole(flipped(mask.dense(batch, rows, cols), turned), random);
  };
  const auto tensor = [&](const Reference& r) { return stored(r, dtype, random); };
  const int64_t height = mask.height(), width = mask.width();
  const Reference a = dense(height, n, t.a), b = dense(n, width, t.b);
  check_same("sdd", sdd(tensor(a), tensor(b), layout, t).values,
             sparsify(product(a, b, t.a, t.b), mask));

  const Reference s = whole(mask.values(batch), random), full = densify(s, mask);
  const SparseTensor sparse{layout, s.tensor(dtype, test_device())};
  const Reference left = dense(n, t.b ? width : height, t.a);
  check_same("dds", dds(tensor(left), sparse, t), product(left, full, t.a, t.b));

  const Reference right = dense(t.a ? height : width, n, t.b);
  const Tensor x = tensor(right);
  check_same("dsd", dsd(sparse, x, t), product(full, right, t.a, t.b));
  const Reference dc = dense(t.a ? width : height, n, false);
  const Tensor dy = tensor(dc);
  check_same("dsd_backward_b", dsd_backward_b(sparse, dy, right.shape, t),
             t.b ? product(dc, full, true, t.a) : product(full, dc, !t.a, false));
  const Reference ds = t.a ? product(right, dc, t.b, true) : product(dc, right, false, !t.b);
  check_same("dsd_backward_s", dsd_backward_s(dy, x, layout, s.shape, t), sparsify(ds, mask));
}

/// `count` layouts of blocks of one size, up to 256 elements a side.
void check_layouts(int block, int count, DType one, DType other) {
  Random random(static_cast<unsigned>(block));
  const Shape batches[] = {{}, {}, {2}, {3, 1}};
  for (int i = 0; i < count; ++i) {
    const Mask mask = random_mask(block, std::min(7, 256 / block), random);
    // Odd, or whole pieces of 16 bytes, which the copy engine and vector loads ask for.
    const int64_t n = i % 3 == 0 ? 8 * between(random, 1, 9) : between(random, 1, 70);
    const Transpose t{.a = random() % 2 == 0, .b = random() % 2 == 0};
    const DType dtype = random() % 2 == 0 ? one : other;
    const Shape& batch = batches[random() % 4];
    CAPTURE(i);
    CAPTURE(to_string(*mask.layout()));
    CAPTURE(to_string(dtype));
    CAPTURE(n);
    CAPTURE(to_string(batch));
    CAPTURE(t.a);
    CAPTURE(t.b);
    check_products(dtype, mask, n, t, batch, random);
  }
}

}  // namespace

TEST_CASE("block-sparse products: random layouts, blocks of 8") {
  check_layouts(8, 500, f32, bf16);
}
TEST_CASE("block-sparse products: random layouts, blocks of 16") {
  check_layouts(16, 300, f16, bf16);
}
TEST_CASE("block-sparse products: random layouts, blocks of 32") {
  check_layouts(32, 150, f64, f16);
}
TEST_CASE("block-sparse products: random layouts, blocks of 64") {
  check_layouts(64, 40, bf16, f32);
}
TEST_CASE("block-sparse products: random layouts, blocks of 128") {
  check_layouts(128, 20, f16, bf16);
}
