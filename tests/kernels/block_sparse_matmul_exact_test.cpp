// The block-sparse products in whole numbers, which every right kernel gives exactly.
#include <bs/kernels/block_sparse_convert.h>
#include <bs/kernels/block_sparse_matmul.h>
#include <bs/kernels/copy.h>
#include <bs/kernels/fill.h>
#include <bs/kernels/math_mode.h>
#include <bs/kernels/matmul.h>
#include <bs/kernels/random.h>
#include <bs/tests/kernels/block_sparse_exact_cases.h>
#include <bs/tests/support/devices.h>
#include <bs/tests/support/sparse_case.h>
#include <doctest/doctest.h>

#include <cmath>
#include <random>

using namespace bs;
using namespace bs::test;

namespace {

constexpr Transpose transposes[] = {{}, {.b = true}, {.a = true}, {.a = true, .b = true}};

/// Whole numbers from -1 to 1: sums of up to 256 products are exact in every dtype, and of
/// thousands as good as always below 256, as exact.
Reference whole_reference(const Shape& shape, uint64_t seed) {
  Reference r = random_reference(shape, seed, -1.5, 1.5);
  for (double& x : r.values) x = std::round(x);
  return r;
}

void check_exact(const char* what, const Tensor& got, const Reference& want) {
  const Reference found = Reference::of(got);
  CAPTURE(what);
  REQUIRE(found.shape == want.shape);
  size_t wrong = 0;
  for (size_t i = 0; i < want.values.size(); ++i) wrong += found[i] != want[i];
  CHECK(wrong == 0);
}

/// All three products of one random mask, in whole numbers.
void check_whole(DType dtype, const Mask& mask, int64_t n, Transpose t, const Shape& batch,
                 uint64_t seed) {
  CAPTURE(to_string(dtype));
  CAPTURE(mask.block);
  CAPTURE(to_string(Shape{mask.heads, mask.rows, mask.cols, n}));
  CAPTURE(to_string(batch));
  CAPTURE(t.a);
  CAPTURE(t.b);
  const Device device = test_device();
  const auto tensor = [&](const Reference& r) { return r.tensor(dtype, device); };
  const Reference s = whole_reference(mask.values(batch), seed);
  const Reference a = whole_reference(flipped(mask.dense(batch, mask.height(), n), t.a), seed + 1);
  const Reference b = whole_reference(flipped(mask.dense(batch, n, mask.width()), t.b), seed + 2);
  check_exact("sdd", sdd(tensor(a), tensor(b), mask.layout(), t).values,
              sparsify(product(a, b, t.a, t.b), mask));
  const int64_t k = t.a ? mask.height() : mask.width();
  const Reference right = whole_reference(flipped(mask.dense(batch, k, n), t.b), seed + 3);
  check_exact("dsd", dsd({mask.layout(), tensor(s)}, tensor(right), t),
              product(densify(s, mask), right, t.a, t.b));
  const int64_t depth = t.b ? mask.width() : mask.height();
  const Reference left = whole_reference(flipped(mask.dense(batch, n, depth), t.a), seed + 4);
  check_exact("dds", dds(tensor(left), {mask.layout(), tensor(s)}, t),
              product(left, densify(s, mask), t.a, t.b));
}

}  // namespace

TEST_CASE("block-sparse products: whole numbers come out exact at the sizes of fast kernels") {
  std::mt19937 random(7);
  const auto pick = [&](std::initializer_list<int> of) {
    return *(of.begin() + random() % of.size());
  };
  for (const int block : {16, 32, 64, 128})
    for (int i = 0; i < 8; ++i) {
      const int most = 256 / block;
      const auto side = [&] {
        return 1 + static_cast<int>(random() % static_cast<unsigned>(most));
      };
      const int heads = pick({1, 1, 3});
      Mask mask = Mask::random(heads, side(), side(), block, pick({20, 60, 100}) / 100.0, random());
      const Shape batches[] = {{}, {2}, {2, 2}};
      check_whole(i % 2 ? f16 : bf16, mask, pick({8, 24, 64, 72, 136, 256}), transposes[i % 4],
                  batches[random() % 3], random());
    }
}

TEST_CASE("block-sparse products: whole numbers come out exact with more rows than a tile has") {
  std::mt19937 random(17);
  const auto pick = [&](std::initializer_list<int> of) {
    return *(of.begin() + random() % of.size());
  };
  for (int i = 0; i < 8; ++i) {
    const int block = i < 6 ? 16 : 32;
    const int rows = pick({9, 16, 17, 33}) * 16 / block + 1, cols = pick({3, 13, 16}) * 16 / block;
    // The long side is that of the rows of dsd's result, transposed or not.
    const bool turned = i % 4 >= 2;
    Mask mask = Mask::random(pick({1, 1, 2}), turned ? cols : rows, turned ? rows : cols, block,
                             pick({4, 15, 60}) / 100.0, random());
    check_whole(i % 2 ? f16 : bf16, mask, pick({136, 192, 264}), transposes[i % 4],
                i == 3 ? Shape{2} : Shape{}, random());
  }
}

TEST_CASE("block-sparse products: an almost dense layout gives what a dense product does") {
  struct Case {
    DType dtype;
    int block;
    bool tf32 = false;
  };
  const Device device = test_device();
  // Large enough for the dense way on a GPU.
  const int n = large_on_gpu(4096, 32), extent = large_on_gpu(2048, 512);
  for (const auto& [dtype, block, tf32] :
       {Case{bf16, 32}, Case{f16, 8}, Case{f32, 16}, Case{f32, 16, true}, Case{f32, 8, true}}) {
    const TF32Guard guard(tf32);
    const DType type = dtype;
    const int side_of_block = block;
    CAPTURE(type);
    CAPTURE(side_of_block);
    const auto whole = [&, of = dtype](const Shape& shape) {
      return randint(-1, 2, shape, of, device);
    };
    const auto op = [](const Tensor& x, bool turned) { return turned ? x.transpose(0, 1) : x; };
    const int side = extent / block;
    Mask mask(1, side, side, block, 1);
    mask.at(0, 3, 5) = mask.at(0, side - 1, 0) = 0;
    const SparseTensor s{mask.layout(), whole(mask.values())};
    const Tensor dense = to_dense(s);
    for (const Transpose t : transposes) {
      const Tensor right = whole(flipped({extent, n}, t.b));
      CHECK(same_bits(dsd(s, right, t), matmul(op(dense, t.a), op(right, t.b))));
      const Tensor left = whole(flipped({n, extent}, t.a));
      CHECK(same_bits(dds(left, s, t), matmul(op(left, t.a), op(dense, t.b))));
      const Tensor a = whole(flipped({extent, n}, t.a)), b = whole(flipped({n, extent}, t.b));
      const SparseTensor want = to_sparse(matmul(op(a, t.a), op(b, t.b)), mask.layout());
      CHECK(same_bits(sdd(a, b, mask.layout(), t).values, want.values));
    }
  }
}

TEST_CASE("block-sparse products: blocks of 8 of matrices whichever way these lie") {
  const Device device = test_device();
  const auto op = [](const Tensor& x, bool turned) { return turned ? x.transpose(-2, -1) : x; };
  // Enough of them for a copy of the dense operand, and too few.
  for (const double density : {0.3, 0.02})
    for (const DType dtype : {bf16, f32, f64})
      for (const Transpose t : transposes) {
        const int heads = t.b ? 2 : 1;
        const Mask mask = Mask::random(heads, 21, 30, 8, density, 3);
        CAPTURE(dtype);
        const auto whole = [&](const Shape& shape) { return randint(-1, 2, shape, dtype, device); };
        const SparseTensor s{mask.layout(), whole(mask.values({3}))};
        const Tensor dense = to_dense(s);
        const Tensor right =
            whole(flipped(mask.dense({3}, t.a ? mask.height() : mask.width(), 72), t.b));
        CHECK(same_bits(dsd(s, right, t), matmul(op(dense, t.a), op(right, t.b))));
        const Tensor left =
            whole(flipped(mask.dense({3}, 72, t.b ? mask.width() : mask.height()), t.a));
        CHECK(same_bits(dds(left, s, t), matmul(op(left, t.a), op(dense, t.b))));
        const Tensor a = whole(flipped(mask.dense({3}, mask.height(), 40), t.a));
        const Tensor b = whole(flipped(mask.dense({3}, 40, mask.width()), t.b));
        const SparseTensor want = to_sparse(matmul(op(a, t.a), op(b, t.b)), mask.layout());
        CHECK(same_bits(sdd(a, b, mask.layout(), t).values, want.values));
      }
}

TEST_CASE("block-sparse products: sdd of many blocks gives those of a dense product") {
  const Device device = test_device();
  const auto op = [](const Tensor& x, bool turned) { return turned ? x.transpose(0, 1) : x; };
  // For the dense way on a GPU: little less than tiles that all multiprocessors have one of.
  const int extent = large_on_gpu(2048, 384), even = large_on_gpu(3000, 24);
  for (int i = 0; i < 32; ++i) {
    const int block = 16 << i % 4;
    const int depth = even + i / 16;  // lines along odd ones the copy engine cannot address
    const Transpose t = transposes[i / 4 % 4];
    Mask mask = Mask::random(1, extent / block - 1, extent / block - 1, block, 0.97, 5);
    for (int col = 0; col < mask.cols; ++col) mask.at(0, 1, col) = 0;  // an empty row
    const auto whole = [&](const Shape& shape) {
      return randint(-1, 2, shape, t.a ? f16 : bf16, device);
    };
    const Tensor a = whole(flipped({mask.height(), depth}, t.a));
    const Tensor b = whole(flipped({depth, mask.width()}, t.b));
    const SparseTensor want = to_sparse(matmul(op(a, t.a), op(b, t.b)), mask.layout());
    CAPTURE(block);
    CHECK(same_bits(sdd(a, b, mask.layout(), t).values, want.values));
    CHECK(same_bits(sdd(a, b, mask.layout(), t).values, want.values));
  }
}

TEST_CASE(
    "block-sparse products: values of more than 2^31 elements, on a GPU; of a few on the CPU") {
  const Device device = test_device();
  // All rows keep every eighth column: what is kept of A B X is A (B X), where X has but such rows.
  const int rows = large_on_gpu(4104, 9), kept = large_on_gpu(2048, 5), block = 16, n = 8;
  std::vector<BlockIndex> blocks;
  for (int row = 0; row < rows; ++row)
    for (int col = 0; col < kept; ++col) blocks.push_back({0, row, 8 * col});
  const LayoutPtr layout = Layout::from_blocks(1, rows, 8 * kept, block, std::move(blocks));
  if (device.is_cuda()) REQUIRE(layout->nnz() * block * block > int64_t{1} << 31);
  const auto whole = [&](const Shape& shape) { return randint(-1, 2, shape, bf16, device); };
  const auto few_rows = [&](int64_t height, std::initializer_list<int64_t> at) {
    const Tensor x = zeros({height, n}, bf16, device);
    for (const int64_t row : at) copy(whole({1, n}), x.slice(0, row, row + 1));
    return x;
  };
  const Tensor a = whole({layout->height(), 16}), b = whole({16, layout->width()});
  const SparseTensor s = sdd(a, b, layout);
  const int64_t width = layout->width(), height = layout->height();
  const Tensor x = few_rows(width, {0, 15, 128, kept / 2 * 128 + 3, width - 128, width - 113});
  CHECK(same_bits(dsd(s, x), matmul(a, matmul(b, x))));
  const Tensor y = few_rows(height, {1, 16, height / 2, height - 17, height - 2});
  const Tensor turned = reshape(dsd(s, y, {.a = true}), {kept, 128, n});
  const Tensor want = matmul(b.transpose(0, 1), matmul(a.transpose(0, 1), y));
  CHECK(same_bits(turned.slice(1, 0, 16), reshape(want, {kept, 128, n}).slice(1, 0, 16)));
  CHECK(same_bits(turned.slice(1, 16, 128), zeros({kept, 112, n}, bf16, device)));
}

TEST_CASE("block-sparse products: sdd of more pieces of work than one round of a GPU takes") {
  const Device device = test_device();
  for (const int block : {64, 128}) {
    const Mask mask = Mask::random(3, large_on_gpu(22, 4), large_on_gpu(24, 5), block, 0.9, 11);
    const int64_t k = 64;
    const Tensor a = whole_reference(mask.dense({}, mask.height(), k), 1).tensor(f16, device);
    const Tensor b = whole_reference(mask.dense({}, k, mask.width()), 2).tensor(f16, device);
    const SparseTensor want = to_sparse(matmul(a, b), mask.layout());
    check_exact("sdd", sdd(a, b, mask.layout()).values, Reference::of(want.values));
  }
}

TEST_CASE("block-sparse products: sdd of rows that are alike wherever they lie") {
  const Device device = test_device();
  const bool large = device.is_cuda();  // large enough for items of gathered rows
  const auto op = [](const Tensor& x, bool turned) { return turned ? x.transpose(-2, -1) : x; };
  std::mt19937 random(23);
  for (int i = 0; i < 36; ++i) {
    const int block = 16 << i % 3, heads = 1 + i / 9 % 3, most = (large ? 2048 : 128) / block;
    const auto side = [&] { return most - static_cast<int>(random() % (1 + most / 2)); };
    const Mask mask = Mask::random(heads, side(), side(), block, i % 2 ? 0.3 : 0.1, random());
    const DType dtype = i / 3 % 2 ? f16 : bf16;
    const Transpose t = transposes[i % 4];
    const int64_t k = large ? 200 + 64 * i : 24;
    const auto whole = [&](const Shape& shape) { return randint(-1, 2, shape, dtype, device); };
    CAPTURE(i);
    CAPTURE(to_string(Shape{heads, mask.rows, mask.cols, block, k}));
    // One right operand for all heads, in every third case.
    const Tensor a = whole(flipped({2, heads, mask.height(), k}, t.a));
    const Tensor b = whole(flipped({i % 3 == 1 ? 1 : heads, k, mask.width()}, t.b));
    const SparseTensor want = to_sparse(matmul(op(a, t.a), op(b, t.b)), mask.layout());
    CHECK(same_bits(sdd(a, b, mask.layout(), t).values, want.values));
  }
}

TEST_CASE(
    "block-sparse products: rows of unequal length, few and deep, are what a dense product is") {
  const bool large = test_device().is_cuda();  // large enough for items that several CTAs share
  std::mt19937 random(13);
  const auto below = [&](int end) {
    return static_cast<int>(random() % static_cast<unsigned>(end));
  };
  const auto pick = [&](std::initializer_list<int> of) {
    return *(of.begin() + below(static_cast<int>(of.size())));
  };
  for (int i = 0; i < (large ? 160 : 8); ++i) {
    const int block = pick({8, 16, 32, 64, 128});
    const int rows = 1 + below(large ? 640 / block : 3), cols = 1 + below(large ? 8192 / block : 3);
    const Mask mask = unequal_rows(rows, cols, block, random);
    const int64_t n = pick({8, 40, 64, 136, 520}), k = large ? pick({64, 200, 1160, 8192}) : 24;
    CAPTURE(i);
    check_as_dense(mask, n, k, transposes[i % 4], i / 4 % 4 == 3 ? f64 : bf16);
  }
}

TEST_CASE("block-sparse products: rows of unequal length whose depth several CTAs share") {
  // Against sums in loops, without a dense product of a GPU.
  const int depth = large_on_gpu(4096, 512);
  std::mt19937 random(23);
  struct Case {
    DType dtype;
    bool tf32 = false;
  };
  int i = 0;
  for (const auto& [dtype, tf32] : {Case{bf16}, Case{f32}, Case{f32, true}, Case{f64}, Case{f16}})
    for (const int block : {16, 64, 32, 128}) {
      const TF32Guard guard(tf32);
      const Transpose t = transposes[i++ % 4];
      Mask mask = unequal_rows(256 / block, depth / block, block, random);
      if (t.a) mask = mask.turned();
      check_whole(dtype, mask, 72, t, {}, random());
    }
}

TEST_CASE("block-sparse products: heads of unequal rows, few and deep, are dense products") {
  const bool large = test_device().is_cuda();
  std::mt19937 random(17);
  const auto below = [&](int end) {
    return static_cast<int>(random() % static_cast<unsigned>(end));
  };
  for (int i = 0; i < (large ? 48 : 6); ++i) {
    const int block = 16 << below(4), heads = 2 + below(3);
    const int rows = 1 + below(large ? 640 / block : 3), cols = 1 + below(large ? 8192 / block : 3);
    Mask mask(heads, rows, cols, block, 0);
    for (int head = 0; head < heads; ++head) {
      const int longest = below(rows);  // another one in each head
      for (int row = 0; row < rows; ++row)
        for (int k = row == longest ? cols : cols / (2 + 9 * head + row); k > 0; --k)
          mask.at(head, row, below(cols)) = 1;
    }
    CAPTURE(i);
    check_heads_as_dense(mask, 8 + 64 * below(3), large ? 200 << below(4) : 24, transposes[i % 4],
                         i / 4 % 4 == 3 ? f64 : bf16);
  }
}

TEST_CASE("block-sparse products: parts of few columns wait by the counters that a launch has") {
  const int blocks = large_on_gpu(2048, 128) / 8;
  check_heads_as_dense(Mask::random(2, blocks, blocks, 8, .3, 31), 64, 64, {}, f32);
}

TEST_CASE("block-sparse products: columns that come in pairs give what dense products do") {
  // Blocks of 32, where the dense operand has its depth along its lines: whole lines of it are two
  // blocks long. Some columns have no other beside them, and their number is odd or even.
  const bool large = test_device().is_cuda();
  std::mt19937 random(29);
  const auto below = [&](int end) {
    return static_cast<int>(random() % static_cast<unsigned>(end));
  };
  for (int i = 0; i < (large ? 12 : 4); ++i) {
    const int most = large ? 64 : 5, rows = most / 2 + below(most / 2);
    const int cols = (most / 2 + below(most / 2)) / 2 * 2 + i / 4 % 2;
    const double density = i % 3 == 0 ? 0.6 : i % 3 == 1 ? 0.3 : 0.1;
    const int64_t n = large ? 136 + 64 * below(8) : 136;
    const DType dtype = i % 5 == 0 ? f16 : bf16;
    CAPTURE(i);
    check_heads_as_dense(Mask::random(2 + below(2), rows, cols, 32, density, random()), n, 64,
                         transposes[i % 4], dtype);
    check_as_dense(Mask::random(1, rows, cols, 32, density, random()), n, 64, transposes[i % 4],
                   dtype);
    Mask pairs(1, rows, cols, 32);  // whole pairs, and such of which some rows have the first alone
    for (int row = 0; row < rows; ++row)
      for (int col = 0; col < cols; ++col)
        pairs.at(0, row, col) = (row + col / 2) % 3 == 0 && (col % 2 == 0 || row % 2 == 0);
    check_as_dense(pairs, n, 64, transposes[i % 4], dtype);
  }
}

TEST_CASE("block-sparse products: shared items give the same bits run after run") {
  const Device device = test_device();
  for (const int block : {16, 64, 128}) {
    Mask mask(1, 256 / block, device.is_cuda() ? 4096 / block : 256 / block, block, 0);
    for (int col = 0; col < mask.cols; ++col) {
      mask.at(0, col % mask.rows, col) = 1;
      mask.at(0, 0, col) = 1;
    }
    const SparseTensor s{mask.layout(), randn(mask.values(), bf16, device)};
    const Tensor b = randn({mask.width(), 96}, bf16, device);
    const Tensor x = randn({mask.height(), 2048}, bf16, device);
    const Tensor y = randn({2048, mask.width()}, bf16, device);
    const Tensor first = dsd(s, b), values = sdd(x, y, mask.layout()).values;
    for (int run = 0; run < (device.is_cuda() ? 20 : 2); ++run) {
      CHECK(same_bits(dsd(s, b), first));
      CHECK(same_bits(sdd(x, y, mask.layout()).values, values));
    }
  }
}
