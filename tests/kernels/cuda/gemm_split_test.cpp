#include <bs/kernels/copy.h>
#include <bs/kernels/cuda/gemm/gemm_split.h>
#include <bs/lib/stream.h>
#include <bs/tests/support/devices.h>
#include <bs/tests/support/reference.h>
#include <doctest/doctest.h>

#include <cmath>
#include <cstring>
#include <random>

using namespace bs;
using namespace bs::cuda;
using test::Reference;

namespace {

/// [batch, side, depth] on the device under test, with the depth or the side along its lines.
Tensor operand(const Reference& x, bool depth_along) {
  const Tensor plain = x.tensor(f32, test::test_device());
  return depth_along ? plain : contiguous(plain.transpose(1, 2)).transpose(1, 2);
}

/// Whether a number has no more bits than tf32 keeps.
bool is_tf32(double value) {
  const auto x = static_cast<float>(value);
  uint32_t bits = 0;
  std::memcpy(&bits, &x, sizeof(x));
  return bits % (1U << 13) == 0;
}

/// How many of the parts are wrong.
int wrong_parts(const Reference& from, const Reference& parts) {
  int wrong = 0;
  for (int64_t batch = 0; batch < from.shape[0]; ++batch)
    for (int64_t row = 0; row < from.shape[1]; ++row) {
      for (int64_t k = 0; k < from.shape[2]; ++k) {
        const double x = from.at({batch, row, k});
        const double large = parts.at({batch, 0, row, k}), small = parts.at({batch, 1, row, k});
        const bool right = is_tf32(large) && is_tf32(small) &&
                           std::abs(large - x) <= std::ldexp(std::abs(x), -11) &&
                           std::abs(large + small - x) <= std::ldexp(std::abs(x), -22);
        wrong += !right;
      }
      for (int64_t k = from.shape[2]; k < parts.shape[3]; ++k)  // what is beyond is left alone
        wrong += parts.at({batch, 0, row, k}) != 7 || parts.at({batch, 1, row, k}) != 7;
    }
  return wrong;
}

}  // namespace

TEST_CASE("gemm: both operands are split into the numbers whose sums they are" *
          doctest::skip(!test::test_device().is_cuda())) {
  const Stream stream = current_stream(test::test_device());
  std::mt19937 random(7);
  const int64_t extents[] = {1, 2, 3, 4, 15, 63, 64, 65, 130, 200};
  const auto extent = [&] { return extents[random() % std::size(extents)]; };
  for (int i = 0; i < 60; ++i) {
    Reference from[2];
    Tensor operands[2], parts[2];
    for (int side = 0; side < 2; ++side) {
      from[side] = test::random_reference(
          {1 + static_cast<int64_t>(random() % 3), extent(), extent()}, random());
      operands[side] = operand(from[side], random() % 2 == 0);
      for (size_t e = 0; e < from[side].values.size(); ++e)  // as f32 has them
        from[side][e] = static_cast<float>(from[side][e]);
      const Shape& s = from[side].shape;
      Reference sevens(
          {s[0], 2, s[1], (s[2] + 3) / 4 * 4 + static_cast<int64_t>(random() % 2) * 4});
      for (double& value : sevens.values) value = 7;
      parts[side] = sevens.tensor(f32, test::test_device());
    }
    gemm_split({operands[0], parts[0].data<float>(), parts[0].size(3)},
               {operands[1], parts[1].data<float>(), parts[1].size(3)}, stream);
    for (int side = 0; side < 2; ++side)
      CHECK_MESSAGE(wrong_parts(from[side], Reference::of(parts[side])) == 0, "operand ", side,
                    " of ", from[side].shape[0], " x ", from[side].shape[1], " x ",
                    from[side].shape[2]);
  }
}
