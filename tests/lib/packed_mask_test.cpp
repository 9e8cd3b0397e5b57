#include <bs/lib/packed_mask.h>
#include <bs/tests/support/devices.h>
#include <bs/tests/support/reference.h>
#include <doctest/doctest.h>

#include <limits>
#include <random>

using namespace bs;
using namespace bs::test;

namespace {

/// Blocks of `block` in which nothing, all, or some is seen.
Reference mixed_mask(const Shape& shape, int block, unsigned seed) {
  std::mt19937 generator(seed);
  Reference kinds({shape[0], shape[1] / block + 1, shape[2] / block + 1}), mask(shape);
  for (double& kind : kinds.values) kind = static_cast<double>(generator() % 3);
  for (int64_t h = 0; h < shape[0]; ++h)
    for (int64_t i = 0; i < shape[1]; ++i)
      for (int64_t j = 0; j < shape[2]; ++j) {
        const double kind = kinds.at({h, i / block, j / block});
        mask.at({h, i, j}) = kind == 0 ? 0 : kind == 1 ? 1 : static_cast<double>(generator() % 2);
      }
  return mask;
}

/// What a packed mask says of one element.
bool sees(const PackedMask& m, const Tensor& numbers, const Tensor& bits, int64_t h, int64_t i,
          int64_t j) {
  const Layout& l = *m.layout();
  const int64_t block = l.block();
  const int32_t number = numbers.data<int32_t>()[(h * l.rows() + i / block) * l.cols() + j / block];
  if (number < 0) return number == PackedMask::all_seen;
  const int64_t bit = (number * block + i % block) * block + j % block;
  return (bits.data<uint8_t>()[bit / 8] >> (bit % 8) & 1) != 0;
}

void check_packed(const PackedMask& packed, const Reference& mask, int block) {
  const int64_t rows = mask.shape[1], cols = mask.shape[2];
  const Layout& l = *packed.layout();
  CHECK(packed.numbers().device() == test_device());
  const Tensor numbers = packed.numbers().to(Device::cpu()), bits = packed.bits().to(Device::cpu());
  int64_t wrong = 0, some = 0, any = 0;
  for (int64_t h = 0; h < mask.shape[0]; ++h)
    for (int64_t r = 0; r * block < rows; ++r)
      for (int64_t c = 0; c * block < cols; ++c) {
        int64_t seen = 0, all = 0;
        for (int64_t i = r * block; i < std::min(rows, (r + 1) * block); ++i)
          for (int64_t j = c * block; j < std::min(cols, (c + 1) * block); ++j) {
            ++all;
            seen += mask.at({h, i, j}) != 0;
            wrong += sees(packed, numbers, bits, h, i, j) != (mask.at({h, i, j}) != 0);
          }
        some += seen > 0 && seen < all;
        any += seen > 0;
        CHECK(l.contains(static_cast<int>(h), static_cast<int>(r), static_cast<int>(c)) ==
              (seen > 0));
      }
  CHECK(wrong == 0);
  CHECK(l.nnz() == any);
  CHECK(bits.shape() == Shape{some, block, block / 8});
}

}  // namespace

TEST_CASE("pack_mask keeps every element of a mask") {
  for (const int block : {8, 16, 32, 64, 128})
    for (const Shape& shape :
         {Shape{1, 1, 1}, Shape{2, 3 * block, 2 * block}, Shape{3, 2 * block - 3, block + 5}}) {
      CAPTURE(block);
      CAPTURE(to_string(shape));
      const Reference mask = mixed_mask(shape, block, 5);
      Reference added = mask;
      for (double& x : added.values) x = x == 0 ? -std::numeric_limits<double>::infinity() : 0;
      for (const DType dtype : {boolean, i32})
        check_packed(pack_mask(mask.tensor(dtype, test_device()), block), mask, block);
      for (const DType dtype : {f32, bf16})
        check_packed(pack_mask(added.tensor(dtype, test_device()), block), mask, block);
    }
}

TEST_CASE("pack_mask takes masks of two to four axes, and any strides") {
  const Reference mask = mixed_mask({6, 20, 12}, 8, 2);
  const Tensor whole = mask.tensor(boolean, test_device());
  check_packed(pack_mask(whole.view({2, 3, 20, 12}), 8), mask, 8);
  Reference one({1, 20, 12});
  std::copy_n(mask.values.begin() + 240, 240, one.values.begin());
  check_packed(pack_mask(whole.select(0, 1), 8), one, 8);
  Reference turned({6, 12, 20});
  for (int64_t h = 0; h < 6; ++h)
    for (int64_t i = 0; i < 20; ++i)
      for (int64_t j = 0; j < 12; ++j) turned.at({h, j, i}) = mask.at({h, i, j});
  check_packed(pack_mask(whole.transpose(1, 2), 8), turned, 8);
}

TEST_CASE("pack_mask asks a function within a pattern only") {
  const LayoutPtr within = Layout::from_blocks(2, 3, 2, 8, {{0, 0, 0}, {0, 2, 1}, {1, 1, 0}});
  int64_t asked = 0;
  const auto sees = [&](int64_t h, int64_t i, int64_t j) {
    ++asked;
    return (h + i + j) % 2 == 0 || i < 4;
  };
  const PackedMask packed = pack_mask(within, 20, 13, sees, test_device());
  CHECK(asked == 64 + 4 * 5 + 64);
  Reference mask({2, 20, 13});
  for (int64_t h = 0; h < 2; ++h)
    for (int64_t i = 0; i < 20; ++i)
      for (int64_t j = 0; j < 13; ++j)
        mask.at({h, i, j}) = within->contains(static_cast<int>(h), static_cast<int>(i / 8),
                                              static_cast<int>(j / 8)) &&
                             ((h + i + j) % 2 == 0 || i < 4);
  check_packed(packed, mask, 8);
}

TEST_CASE("pack_mask refuses what does not fit") {
  CHECK_THROWS_WITH_AS(pack_mask(Tensor::empty({4}, boolean), 8),
                       "pack_mask: mask [4] is not [rows, cols], [heads, rows, cols] or [batch, "
                       "heads, rows, cols]",
                       Error);
  CHECK_THROWS_WITH_AS(pack_mask(Tensor::empty({4, 4}, boolean), 12),
                       "pack_mask: block 12 is none of 8, 16, 32, 64 and 128", Error);
  CHECK_THROWS_WITH_AS(
      pack_mask(Tensor::from({0.F, 1.F}).view({1, 2}), 8),
      "pack_mask: a floating mask is added to scores, and 1 is neither 0 nor -infinity", Error);
  const LayoutPtr within = Layout::from_blocks(1, 2, 2, 8, {});
  CHECK_THROWS_WITH_AS(pack_mask(within, 8, 16, [](int64_t, int64_t, int64_t) { return true; }),
                       "pack_mask: 8 rows and 16 columns do not fit a layout of 2 x 2 blocks of 8",
                       Error);
  CHECK_FALSE(PackedMask().defined());
  CHECK_FALSE(PackedMask().to(Device::cpu()).defined());
}
