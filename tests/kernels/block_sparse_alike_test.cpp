// Products of block rows that are alike wherever they lie, which a GPU gathers into strips: bit for
// bit those of dense matrices.
#include <bs/kernels/block_sparse_convert.h>
#include <bs/kernels/block_sparse_matmul.h>
#include <bs/kernels/math_mode.h>
#include <bs/kernels/matmul.h>
#include <bs/kernels/settings.h>
#include <bs/tests/kernels/block_sparse_epilogue_cases.h>
#include <bs/tests/kernels/block_sparse_exact_cases.h>
#include <bs/tests/support/devices.h>
#include <bs/tests/support/sanitized.h>
#include <doctest/doctest.h>

#include <algorithm>
#include <random>

using namespace bs;
using namespace bs::test;

namespace {

/// Gathered on a GPU for sure: rows of a kind fill strips.
Mask draw(std::mt19937& random, int heads, int block, int kinds = 8) {
  const int rows = (test_device().is_cuda() ? 2048 : 512) / block;
  const auto side = [&] { return rows - static_cast<int>(random() % (1 + rows / 4)); };
  Mask mask = alike_rows(heads, side(), side(), kinds, block);
  for (int head = 0; head < heads; ++head)  // an empty one, and one with more than its kind
    for (int col = 0; col < mask.cols; ++col) {
      mask.at(head, std::min(3, mask.rows - 1), col) = 0;
      if (col % 5 == 0) mask.at(head, head, col) = 1;
    }
  return mask;
}

Tensor flip(const Tensor& x, bool turned) { return turned ? x.transpose(-2, -1) : x; }

/// sdd, dsd and dds of s, [2, nnz, block, block], with n columns, rows and as deep.
void check_each(const SparseTensor& s, int64_t n, Transpose t, std::mt19937& random) {
  const Layout& layout = *s.layout;
  const DType dtype = s.values.dtype();
  CAPTURE(t.a);
  CAPTURE(t.b);
  const auto matrices = [&](Shape lead, int64_t rows, int64_t cols, bool turned) {
    if (layout.heads() > 1) lead.push_back(layout.heads());
    lead.push_back(turned ? cols : rows);
    lead.push_back(turned ? rows : cols);
    return whole(lead, random(), dtype);
  };
  const int64_t height = layout.height(), width = layout.width();
  const Tensor dense = to_dense(s);
  const Tensor right = matrices({2}, t.a ? height : width, n, t.b);
  const Tensor got = dsd(s, right, t);
  CHECK(same_bits(got, matmul(flip(dense, t.a), flip(right, t.b))));
  CHECK(same_bits(got, dsd(s, right, t)));
  const Tensor left = matrices({}, n, t.b ? width : height, t.a);
  CHECK(same_bits(dds(left, s, t), matmul(flip(left, t.a), flip(dense, t.b))));
  const Tensor a = matrices({2}, height, n, t.a), b = matrices({2}, n, width, t.b);
  const SparseTensor want = to_sparse(matmul(flip(a, t.a), flip(b, t.b)), s.layout);
  CHECK(same_bits(sdd(a, b, s.layout, t).values, want.values));
}

/// Products of all kinds in turn on each of five layouts of a block size. A layout's lists and
/// schedules are made once, each for all kernels that read the same one.
void check_in_turn(int block) {
  const SettingsGuard always(
      {.portable_products = settings().portable_products, .gathered_products = true});
  std::mt19937 random(43 + static_cast<unsigned>(block));
  const auto pick = [&](std::initializer_list<int> of) {
    return *(of.begin() + random() % of.size());
  };
  std::vector<Mode> modes = modes_of_f32();
  modes.push_back({bf16});
  modes.push_back({f16});
  const auto check = [&](const Mask& mask) {
    const LayoutPtr layout = mask.layout();
    for (int i = 0; i < (test_device().is_cuda() ? 24 : sanitized ? 1 : 2); ++i) {
      const Mode mode = modes[random() % modes.size()];
      const TF32Guard guard(mode.tf32);
      const Transpose t = transposes[random() % 4];
      const int64_t n = pick({40, 72, 192, 256, 520});
      CAPTURE(i);
      CAPTURE(to_string(mode.dtype));
      CAPTURE(mode.tf32);
      CAPTURE(to_string(Shape{mask.heads, mask.rows, mask.cols, mask.block, n}));
      check_each({layout, whole(mask.values({2}), random(), mode.dtype)}, n, t, random);
    }
  };
  check(draw(random, 1, block));
  check(draw(random, 3, block));
  const int rows = (test_device().is_cuda() ? 2048 : 384) / block;
  check(unequal_rows(rows, 2 * rows, block, random));  // of which long ones are cut
  check(Mask::random(1, rows, rows, block, 0.15, random()));
  // Few and long: pairs of rows and fours are cut, into other pieces.
  const int shorter = test_device().is_cuda() ? 1 : 8;
  check(alike_rows(1, 512 / block, 8192 / block / shorter, 4, block));
}

}  // namespace

TEST_CASE("block-sparse products: dsd and dds of rows that are alike wherever they lie") {
  std::mt19937 random(29);
  const auto pick = [&](std::initializer_list<int> of) {
    return *(of.begin() + random() % of.size());
  };
  for (int i = 0; i < (test_device().is_cuda() ? 72 : 12); ++i) {
    const int block = 16 << i % 3, heads = i % 5 == 0 ? 3 : 1;
    const Mask mask = draw(random, heads, block);
    const DType dtype = i / 3 % 2 ? f16 : bf16;
    const Transpose t = transposes[i / 2 % 4];
    const int64_t n = pick({8, 40, 64, 72, 136, 256, 392});
    CAPTURE(i);
    CAPTURE(to_string(Shape{heads, mask.rows, mask.cols, block, n}));
    check_each({mask.layout(), whole(mask.values({2}), random(), dtype)}, n, t, random);
  }
}

TEST_CASE(
    "block-sparse products: dsd and dds of so many columns that tiles are as wide as can be") {
  std::mt19937 random(47);
  for (int i = 0; i < (test_device().is_cuda() ? 16 : 4); ++i) {
    const int block = 16 << i % 4, rows = (test_device().is_cuda() ? 2048 : 512) / block;
    const bool alike = i / 4 % 2;
    const Mask mask =
        alike ? draw(random, 1, block) : Mask::random(1, rows, rows - 1, block, 0.15, random());
    const DType dtype = random() % 2 ? f16 : bf16;
    const Transpose t = transposes[random() % 4];
    const int64_t n = test_device().is_cuda() ? 8448 + 8 * (random() % 33) : 520;
    CAPTURE(i);
    CAPTURE(to_string(Shape{mask.rows, mask.cols, mask.block, n}));
    check_each({mask.layout(), whole(mask.values({2}), random(), dtype)}, n, t, random);
  }
}

TEST_CASE("block-sparse products: f32 rows that are alike wherever they lie") {
  const SettingsGuard always({.portable_products = settings().portable_products,
                              .gathered_products = true});  // at sizes where it would not pay, too
  std::mt19937 random(41);
  for (const auto& [dtype, tf32] : modes_of_f32())
    for (const Transpose t : transposes)
      for (const int heads : {1, 3}) {
        const TF32Guard guard(tf32);
        const Mask mask = draw(random, heads, 32, 4);
        const int64_t n = 192 + 4 * (random() % 40);
        const bool by_tf32 = tf32;
        CAPTURE(by_tf32);
        CAPTURE(to_string(Shape{heads, mask.rows, mask.cols, n}));
        check_each({mask.layout(), whole(mask.values({2}), random(), dtype)}, n, t, random);
      }
}

TEST_CASE("block-sparse products: one layout serves all kinds in turn, blocks of 16") {
  check_in_turn(16);
}

TEST_CASE("block-sparse products: one layout serves all kinds in turn, blocks of 32") {
  check_in_turn(32);
}

TEST_CASE("block-sparse products: one layout serves all kinds in turn, blocks of 64") {
  check_in_turn(64);
}

TEST_CASE("block-sparse products: one layout serves all kinds in turn, blocks of 128") {
  check_in_turn(128);
}

TEST_CASE("block-sparse products: heads that are summed of rows that are alike") {
  std::mt19937 random(31);
  for (const int block : {16, 32, 64}) {
    const Mask mask = draw(random, 3, block);
    const SparseTensor s{mask.layout(), whole(mask.values(), random())};
    const Tensor dc = whole({3, mask.height(), 72}, random());
    const Tensor stacked = to_dense(s).view({3 * mask.height(), mask.width()});
    CHECK(same_bits(dsd_backward_b(s, dc, {1, mask.width(), 72}).squeeze(0),
                    matmul(stacked.transpose(0, 1), dc.view({3 * mask.height(), 72}))));
  }
}

TEST_CASE("block-sparse epilogues: of dsd and dds of rows that are alike wherever they lie") {
  using namespace bs::epilogue;
  std::mt19937 random(37);
  for (const bool left : {false, true})
    for (const Transpose t : transposes)
      for (const int block : {16, 32, 64}) {
        if (test_device().is_cpu() && block == 64) continue;
        const Mask mask = draw(random, 1, block);
        const SparseTensor s{mask.layout(), whole(mask.values(), random())};
        const int64_t k = left == (left ? t.b : t.a) ? mask.width() : mask.height(), n = 200;
        const Tensor x = whole(left ? flipped({n, k}, t.a) : flipped({k, n}, t.b), random());
        const Tensor stored = to_dense(s);
        const Reference want = Reference::of(left ? matmul(turned(x, t.a), turned(stored, t.b))
                                                  : matmul(turned(stored, t.a), turned(x, t.b)));
        const auto rows = static_cast<size_t>(want.shape[0]);
        const auto columns = static_cast<size_t>(want.shape[1]);
        const Tensor r = whole({want.shape[1]}, random()), c = whole({want.shape[0]}, random());
        const auto empty = [](const Shape& shape, DType dtype) {
          return Tensor::empty(shape, dtype, test_device());
        };
        const Tensor kept = empty(want.shape, f16);
        const Tensor sums = empty({want.shape[0]}, f32), most = empty({want.shape[1]}, f32);
        const Value v = accumulator() + row("r", Element::f16) + column("c", Element::f16);
        const ProductOptions options{
            .epilogue = GemmEpilogue(relu(v))
                            .store("v", v, Element::f16)
                            .row_sum("sums", relu(v))
                            .column_max("most", v),
            .tensors = {{"r", r}, {"c", c}, {"v", kept}, {"sums", sums}, {"most", most}}};
        const Reference got = Reference::of(left ? dds(x, s, t, options) : dsd(s, x, t, options));
        const Reference of_row = Reference::of(r), of_column = Reference::of(c);
        const Reference before = Reference::of(kept), summed = Reference::of(sums);
        const Reference greatest = Reference::of(most);
        std::vector<double> largest(columns, -1e30);
        size_t wrong = 0;
        for (size_t i = 0; i < rows; ++i) {
          double sum = 0;
          for (size_t j = 0; j < columns; ++j) {
            const double argument = want[i * columns + j] + of_row[j] + of_column[i];
            wrong += before[i * columns + j] != argument;
            wrong += got[i * columns + j] != std::max(argument, 0.0);
            sum += std::max(argument, 0.0);
            largest[j] = std::max(largest[j], argument);
          }
          wrong += summed[i] != sum;
        }
        for (size_t j = 0; j < columns; ++j) wrong += greatest[j] != largest[j];
        CAPTURE(block);
        CAPTURE(left);
        CHECK(wrong == 0);
      }
}
