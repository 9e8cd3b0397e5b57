// The gradient of a bias, against sums of dense rows in double.
#include <bs/kernels/block_sparse_softmax.h>
#include <bs/kernels/copy.h>
#include <bs/tests/support/devices.h>
#include <bs/tests/support/op_case.h>
#include <bs/tests/support/sparse_case.h>
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

using namespace bs;
using namespace bs::test;

namespace {

/// What a bias of `shape` adds up, of y and dy [..., nnz, block, block], and the largest sum of
/// magnitudes, which rounding is relative to.
std::pair<Reference, double> expected_gradient(const Reference& y, const Reference& dy,
                                               const Mask& mask, const Shape& shape) {
  const Reference rows = densify(y, mask);
  Reference ds = densify(dy, mask);
  const auto n = static_cast<size_t>(mask.width());
  for (size_t at = 0; at < ds.values.size(); at += n) {
    double dot = 0;
    for (size_t j = at; j < at + n; ++j) dot += rows[j] * ds[j];
    for (size_t j = at; j < at + n; ++j) ds[j] = rows[j] * (ds[j] - dot);
  }
  Reference sums(shape), sizes(shape);
  for (int64_t e = 0; e < ds.shape.product(); ++e) {
    int64_t rest = e, to = 0, step = 1;
    for (int axis = ds.shape.rank() - 1; axis >= 0; --axis) {
      const int64_t index = rest % ds.shape[axis];
      rest /= ds.shape[axis];
      const int of_bias = axis - (ds.shape.rank() - shape.rank());
      if (of_bias < 0 || shape[of_bias] == 1) continue;
      to += index * step;
      step *= shape[of_bias];
    }
    const double addend = ds[static_cast<size_t>(e)];
    sums[static_cast<size_t>(to)] += addend;
    sizes[static_cast<size_t>(to)] += std::abs(addend);
  }
  return {sums, *std::max_element(sizes.values.begin(), sizes.values.end())};
}

void check_gradient(const Mask& mask, const Shape& lead, const Shape& bias) {
  for (const DType dtype : {f64, f32, f16, bf16}) {
    CAPTURE(to_string(lead));
    CAPTURE(to_string(bias));
    const auto draw = [&](uint64_t seed, double most) {
      return random_reference(mask.values(lead), seed, 0, most).tensor(dtype, test_device());
    };
    const auto width = static_cast<double>(mask.width());
    const Tensor y = draw(1, 2 / width), dy = draw(2, 1);
    const Tensor made = block_sparse_softmax_bias_gradient({mask.layout(), y}, dy, bias);
    CHECK(made.shape() == bias);
    CHECK(made.dtype() == dtype);
    const auto& [wanted, size] = expected_gradient(Reference::of(y), Reference::of(dy), mask, bias);
    const Reference got = Reference::of(made);
    double worst = 0;
    for (size_t i = 0; i < got.values.size(); ++i)
      worst = std::max(worst, std::abs(got[i] - wanted[i]));
    // A row's products are added up, and then its gradients in all matrices.
    const double terms = width + static_cast<double>(lead.product());
    const double most = (2 * epsilon(dtype) + 4 * terms * epsilon(dtype == f64 ? f64 : f32)) * size;
    CHECK(worst <= most);
    const Tensor again = block_sparse_softmax_bias_gradient({mask.layout(), y}, dy, bias);
    CHECK(Reference::of(again).values == got.values);
  }
}

}  // namespace

TEST_CASE("the gradient of a bias: whatever it shares") {
  const Mask one = Mask::random(1, 3, 4, 8, .6, 31), two = Mask::random(2, 3, 4, 8, .6, 32);
  for (const Shape& bias : {Shape{24, 32}, Shape{1, 32}, Shape{24, 1}, Shape{5, 24, 32},
                            Shape{3, 1, 24, 32}, Shape{3, 5, 24, 32}, Shape{1, 1, 1}})
    check_gradient(one, {3, 5}, bias);
  for (const Shape& bias : {Shape{24, 32}, Shape{2, 24, 32}, Shape{5, 1, 24, 32},
                            Shape{3, 1, 2, 24, 32}, Shape{3, 5, 2, 24, 32}, Shape{3, 1, 1, 1, 32}})
    check_gradient(two, {3, 5}, bias);
  check_gradient(one, {3, 5, 2}, {1, 5, 1, 24, 32});  // axes that are no neighbours
  check_gradient(one, {}, {24, 32});
  check_gradient(one, {37}, {24, 32});
}

TEST_CASE("the gradient of a bias: blocks of every size, rows of every length") {
  for (const int block : {8, 16, 32, 64, 128})
    check_gradient(Mask::random(1, 2, 3, block, .7, 33), {9}, {2 * block, 3 * block});
  check_gradient(Mask(1, 1, 40, 64, 1), {5}, {64, 2560});  // longer than a warp keeps
  check_gradient(Mask(1, 2, 7, 32, 1), {2, 4}, {2, 1, 64, 224});
  check_gradient(Mask(1, 1, 1, 8, 1), {5000}, {8, 8});  // more matrices than one kernel sums
}

TEST_CASE("the gradient of a bias: unaligned operands, nothing, and what is not finite") {
  const Mask mask = Mask::random(1, 3, 4, 16, .6, 34);
  const LayoutPtr layout = mask.layout();
  const Shape shape = mask.values({4});
  const Reference y = random_reference(shape, 3), dy = random_reference(shape, 4);
  const auto shifted = [&](const Reference& x) {
    const Tensor room = Tensor::empty({shape.product() + 1}, bf16, test_device());
    const Tensor to = room.slice(0, 1, shape.product() + 1).view(shape);
    copy(x.tensor(bf16, test_device()), to);
    return to;
  };
  const Shape bias{48, 64};
  const auto gradient = [&](const Tensor& a, const Tensor& b) {
    return Reference::of(block_sparse_softmax_bias_gradient({layout, a}, b, bias)).values;
  };
  const auto aligned = gradient(y.tensor(bf16, test_device()), dy.tensor(bf16, test_device()));
  const auto other = gradient(shifted(y), shifted(dy));
  for (size_t i = 0; i < aligned.size(); ++i)
    CHECK(std::abs(aligned[i] - other[i]) <= .02 * (1 + std::abs(aligned[i])));

  const Tensor none = Tensor::empty(mask.values({0}), f32, test_device());
  for (const double v : gradient(none, none)) CHECK(v == 0);

  Reference broken = dy;
  broken[0] = std::numeric_limits<double>::quiet_NaN();  // of the first row
  const auto spread = gradient(y.tensor(f32, test_device()), broken.tensor(f32, test_device()));
  Reference ones(mask.values());
  std::fill(ones.values.begin(), ones.values.end(), 1.0);
  const std::vector<double> stored = densify(ones, mask).values;
  const auto first = std::find(stored.begin(), stored.end(), 1.0) - stored.begin();
  const auto row = static_cast<size_t>(first / bias[1]), width = static_cast<size_t>(bias[1]);
  for (size_t i = 0; i < spread.size(); ++i)
    CHECK(std::isnan(spread[i]) == (i / width == row && stored[i] == 1));
}

TEST_CASE("the gradient of a bias refuses what does not fit") {
  const Mask mask(1, 1, 2, 8, 1);
  const Tensor y = Tensor::empty(mask.values({3}), f32, test_device());
  const SparseTensor s{mask.layout(), y};
  CHECK_THROWS_WITH_AS(block_sparse_softmax_bias_gradient(s, y, {8, 8}),
                       "block_sparse_softmax_bias_gradient: bias [8, 8] does not broadcast to the "
                       "dense matrix [3, 8, 16]",
                       Error);
  CHECK_THROWS_AS(block_sparse_softmax_bias_gradient(s, y, {1, 1, 8, 16}), Error);
  CHECK_THROWS_AS(block_sparse_softmax_bias_gradient(s, y.slice(0, 0, 2), {8, 16}), Error);
}
