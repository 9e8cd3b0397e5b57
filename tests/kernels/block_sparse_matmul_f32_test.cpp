// The block-sparse products of f32 at the sizes of the fast kernels: as accurate as f32, and
// rounded to TF32.
#include <bs/kernels/block_sparse_matmul.h>
#include <bs/kernels/math_mode.h>
#include <bs/kernels/settings.h>
#include <bs/tests/kernels/block_sparse_exact_cases.h>
#include <bs/tests/support/devices.h>
#include <bs/tests/support/sanitized.h>
#include <bs/tests/support/sparse_case.h>
#include <doctest/doctest.h>

#include <cmath>
#include <random>

using namespace bs;
using namespace bs::test;

namespace {

/// Blocks of 16 and 32 have kernels of their own too, at sizes where they would not pay.
Settings gathering() {
  Settings all = settings();
  all.gathered_products = true;
  return all;
}

constexpr Transpose transposes[] = {{}, {.b = true}, {.a = true}, {.a = true, .b = true}};

Reference rounded(Reference r) {
  for (double& x : r.values) x = std::round(x);
  return r;
}

Reference magnitudes(Reference r) {
  for (double& x : r.values) x = std::abs(x);
  return r;
}

/// One product with its operands, the sparse one of them dense where the other is not.
struct Case {
  const char* name;
  Reference result, left, right;  ///< the operands with all their zeros, as op takes them
};

/// The products of one mask on operands from `make(shape, seed, of)`, `of` being "left" or "right".
template <class Make>
std::vector<Case> products(const Mask& mask, int64_t n, Transpose t, const Shape& batch,
                           const Make& make) {
  const Device device = test_device();
  const auto tensor = [&](const Reference& r) { return r.tensor(f32, device); };
  std::vector<Case> cases;
  {
    const Reference a = make(flipped(mask.dense(batch, mask.height(), n), t.a), 1);
    const Reference b = make(flipped(mask.dense(batch, n, mask.width()), t.b), 2);
    const SparseTensor got = sdd(tensor(a), tensor(b), mask.layout(), t);
    cases.push_back({"sdd", Reference::of(got.values), a, b});
  }
  {
    const Reference s = make(mask.values(batch), 3);
    const Reference b =
        make(flipped(mask.dense(batch, t.a ? mask.height() : mask.width(), n), t.b), 4);
    const Tensor got = dsd({mask.layout(), tensor(s)}, tensor(b), t);
    cases.push_back({"dsd", Reference::of(got), densify(s, mask), b});
  }
  {
    const Reference s = make(mask.values(batch), 5);
    const Reference a =
        make(flipped(mask.dense(batch, n, t.b ? mask.width() : mask.height()), t.a), 6);
    const Tensor got = dds(tensor(a), {mask.layout(), tensor(s)}, t);
    cases.push_back({"dds", Reference::of(got), a, densify(s, mask)});
  }
  return cases;
}

Reference expected(const Case& c, const Mask& mask, Transpose t, bool absolute) {
  const Reference whole = absolute ? product(magnitudes(c.left), magnitudes(c.right), t.a, t.b)
                                   : product(c.left, c.right, t.a, t.b);
  return c.name == std::string("sdd") ? sparsify(whole, mask) : whole;
}

}  // namespace

TEST_CASE("block-sparse products of f32: whole numbers come out exact in both modes") {
  const SettingsGuard gathered(gathering());
  // Numbers of 12 bits have parts that TF32 lacks, so that both parts of an operand count; sums of
  // up to 384 products with -1, 0 and 1 are exact.
  std::mt19937 random(17);
  const auto pick = [&](std::initializer_list<int> of) {
    return *(of.begin() + random() % of.size());
  };
  int number = 0;
  for (const int block : {16, 32, 64, 128})
    for (int i = 0; i < 16; ++i) {
      const bool tf32 = i % 2 == 1;
      if (tf32 && test_device().is_cpu()) continue;  // which has no such mode
      if (!is_sampled(number++)) continue;
      const Transpose t = transposes[i / 2 % 4];
      const TF32Guard guard(tf32);
      const auto side = [&] { return 1 + static_cast<int>(random() % (384U / block)); };
      const Mask mask = Mask::random(pick({1, 1, 3}), side(), side(), block,
                                     pick({20, 60, 100}) / 100.0, random());
      const Shape batches[] = {{}, {2}, {2, 2}};
      const Shape& batch = batches[random() % 3];
      const int64_t n = pick({192, 196, 200, 256, 260, 516});
      const bool large_left = random() % 2 == 0;
      CAPTURE(i);
      CAPTURE(tf32);
      CAPTURE(to_string(Shape{mask.heads, mask.rows, mask.cols, block, n}));
      CAPTURE(to_string(batch));
      CAPTURE(t.a);
      CAPTURE(t.b);
      const auto make = [&](const Shape& shape, uint64_t seed) {
        // The left operands are numbers 1, 3 and 6.
        const bool left = seed == 1 || seed == 3 || seed == 6;
        const double most = left != large_left ? 1.5 : tf32 ? 1000 : 4095;
        return rounded(random_reference(shape, seed + random() % 1000, -most, most));
      };
      for (const Case& c : products(mask, n, t, batch, make)) {
        CAPTURE(c.name);
        const Reference want = expected(c, mask, t, false);
        REQUIRE(c.result.shape == want.shape);
        size_t wrong = 0;
        for (size_t k = 0; k < want.values.size(); ++k) wrong += c.result[k] != want[k];
        CHECK(wrong == 0);
      }
    }
}

TEST_CASE("block-sparse products of f32: errors are those of f32, and of TF32 where asked for") {
  const SettingsGuard gathered(gathering());
  // Of a product, three TF32 ones are off by 13 of 2^-24 at most (bench/notes/gemm.md). Within 32
  // of the depth the tensor cores cut off 12 sums, each at 2^-22 of it at most; the sums of those
  // are rounded. TF32 has operands off by .66 of 2^-10, or rounded to nearest, by half of it.
  constexpr int depth = 256;
  for (const int block : {16, 32, 64, 128})
    for (const bool tf32 : {false, true})
      for (const Transpose t : transposes) {
        if (tf32 && test_device().is_cpu()) continue;
        const TF32Guard guard(tf32);
        const Mask mask = Mask::random(1, depth / block, depth / block, block, 0.6, 3);
        const auto make = [&](const Shape& shape, uint64_t seed) {
          return Reference::of(random_reference(shape, seed, -2, 2).tensor(f32, Device::cpu()));
        };
        const double sums = 12 * 0x1p-22 + depth / 32 * 0x1p-24;
        const double bound =
            tf32 ? (0.66 + 0.66) * 0x1p-10 + depth / 8 * 0x1p-22 : 13 * 0x1p-24 + sums;
        CAPTURE(block);
        CAPTURE(tf32);
        CAPTURE(t.a);
        CAPTURE(t.b);
        for (const Case& c : products(mask, depth, t, {}, make)) {
          CAPTURE(c.name);
          const Reference want = expected(c, mask, t, false), size = expected(c, mask, t, true);
          size_t wrong = 0;
          for (size_t k = 0; k < want.values.size(); ++k)
            wrong += std::abs(c.result[k] - want[k]) > bound * size[k];
          CHECK(wrong == 0);
        }
      }
}

TEST_CASE("block-sparse products of f32: neither mode has a bias") {
  const SettingsGuard gathered(gathering());
  // Operands that are cut off lose .36 of 2^-10 each in the mean, 7e-4 of a product; rounded, next
  // to nothing over so many. Three products leave what the tensor cores cut off of the four sums of
  // large terms within 32 of the depth, each at 2^-22 at most.
  for (const bool tf32 : {false, true})
    for (const int block : {16, 32, 64, 128}) {
      const TF32Guard guard(tf32);
      const Mask mask(1, 256 / block, 256 / block, block, 1);
      const auto make = [&](const Shape& shape, uint64_t seed) {
        return Reference::of(random_reference(shape, seed, 1, 2).tensor(f32, Device::cpu()));
      };
      for (const Case& c : products(mask, 256, {}, {}, make)) {
        CAPTURE(block);
        CAPTURE(tf32);
        CAPTURE(c.name);
        const Reference want = expected(c, mask, {}, false);
        double sum = 0;
        for (size_t k = 0; k < want.values.size(); ++k) sum += c.result[k] / want[k] - 1;
        const double mean = sum / static_cast<double>(want.values.size());
        CHECK(std::abs(mean) < (tf32 ? 0x1p-13 : 0x1p-20));
      }
    }
}

TEST_CASE("block-sparse products of f32: rows of unequal length, few and deep") {
  const SettingsGuard gathered(gathering());
  const bool large = test_device().is_cuda();  // large enough for items that several CTAs share
  std::mt19937 random(19);
  const auto below = [&](int end) {
    return static_cast<int>(random() % static_cast<unsigned>(end));
  };
  for (int i = 0; i < (large ? 32 : 4); ++i) {
    const TF32Guard guard(i % 2 == 1);
    const int block = 128 >> i / 2 % 4;
    const int rows = 1 + below(large ? 640 / block : 3), cols = 1 + below(large ? 8192 / block : 3);
    const Mask mask = unequal_rows(rows, cols, block, random);
    const int64_t n = large ? 192 + 4 * below(200) : 8, k = large ? 64 + 4 * below(1000) : 24;
    CAPTURE(i);
    check_as_dense(mask, n, k, transposes[i / 8 % 4], f32);
  }
}
