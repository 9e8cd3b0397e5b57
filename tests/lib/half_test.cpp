#include <bs/lib/half.h>
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>
#include <vector>

using namespace bs;

namespace {

/// A 16-bit format by its definition: what the bits mean, in double.
struct Format {
  int mantissa_bits;
  int bias;

  uint16_t infinity() const {
    return static_cast<uint16_t>(0x7fff >> mantissa_bits << mantissa_bits);
  }
  double value(uint16_t magnitude) const {
    const int exponent = magnitude >> mantissa_bits;
    const int mantissa = magnitude & ((1 << mantissa_bits) - 1);
    const int implicit = exponent > 0 ? 1 << mantissa_bits : 0;
    return std::ldexp(implicit + mantissa, std::max(exponent, 1) - bias - mantissa_bits);
  }
};
constexpr Format binary16 = {10, 15};
constexpr Format brain16 = {7, 127};

/// Nearest of all finite values and the power of two above them, ties to even bits: by search.
class Rounder {
 public:
  explicit Rounder(const Format& format) : format_(format) {
    for (int bits = 0; bits <= format.infinity(); ++bits)  // infinity's bits stand for 2^(max + 1)
      values_.push_back(format.value(static_cast<uint16_t>(bits)));
  }
  uint16_t operator()(float x) const {
    const int sign = std::signbit(x) ? 0x8000 : 0;
    const double magnitude = std::abs(static_cast<double>(x));
    auto above = static_cast<size_t>(std::lower_bound(values_.begin(), values_.end(), magnitude) -
                                     values_.begin());
    if (above == values_.size()) return static_cast<uint16_t>(sign | format_.infinity());
    if (above > 0) {
      const double up = values_[above] - magnitude;
      const double down = magnitude - values_[above - 1];
      if (down < up || (down == up && above % 2 == 1)) --above;
    }
    return static_cast<uint16_t>(static_cast<size_t>(sign) | above);
  }

 private:
  Format format_;
  std::vector<double> values_;
};

/// Floats where rounding is decided: each value, each middle between neighbours, and the floats
/// beside them; then floats of all kinds.
std::vector<float> hard_floats(const Format& format) {
  std::vector<float> floats;
  const auto add = [&](double value) {
    const auto x = static_cast<float>(value);
    for (float y : {x, std::nextafterf(x, 0), std::nextafterf(x, INFINITY)}) {
      floats.push_back(y);
      floats.push_back(-y);
    }
  };
  for (int bits = 0; bits < format.infinity(); ++bits) {
    const double here = format.value(static_cast<uint16_t>(bits));
    const double next = format.value(static_cast<uint16_t>(bits + 1));
    add(here);
    add((here + next) / 2);
  }
  std::mt19937 generator(3);
  for (int i = 0; i < 200000; ++i) {
    const float x = std::bit_cast<float>(static_cast<uint32_t>(generator()));
    if (!std::isnan(x)) floats.push_back(x);
  }
  return floats;
}

bool is_nan(uint16_t bits, const Format& format) { return (bits & 0x7fff) > format.infinity(); }

}  // namespace

TEST_CASE("half widens every value exactly and back") {
  int wrong = 0;
  for (int i = 0; i < 0x10000; ++i) {
    const auto bits = static_cast<uint16_t>(i);
    const auto wide = static_cast<float>(half::from_bits(bits));
    if (is_nan(bits, binary16)) {
      wrong += !std::isnan(wide) || half(wide).bits != (bits | 0x200);
    } else {
      const double expected = (bits & 0x7fff) == 0x7c00 ? INFINITY : binary16.value(bits & 0x7fff);
      wrong +=
          std::abs(wide) != static_cast<float>(expected) || std::signbit(wide) != (i >= 0x8000);
      wrong += half(wide).bits != bits;
    }
    // The software's conversion is the processor's, bit for bit.
    wrong += std::bit_cast<uint32_t>(detail::widen_half(bits)) != std::bit_cast<uint32_t>(wide);
    wrong += static_cast<double>(half::from_bits(bits)) != static_cast<double>(wide) &&
             !std::isnan(wide);
  }
  CHECK(wrong == 0);
}

TEST_CASE("half rounds to nearest even") {
  const Rounder expected(binary16);
  int wrong = 0;
  for (float x : hard_floats(binary16)) {
    wrong += half(x).bits != expected(x);
    wrong += detail::round_to_half(x) != expected(x);
  }
  CHECK(wrong == 0);
  CHECK(half(65519.996F).bits == 0x7bff);
  CHECK(half(65520.0F).bits == 0x7c00);
  CHECK(half(0x1p-25F).bits == 0);
  CHECK(half(std::nextafterf(0x1p-25F, 1)).bits == 1);
  CHECK(half(-0.0F).bits == 0x8000);
  CHECK(half(0.1).bits == half(0.1F).bits);
  for (uint32_t payload : {0x7f800001U, 0x7fc00000U, 0xffbfe000U, 0xffffffffU}) {
    const auto nan = std::bit_cast<float>(payload);
    CHECK(is_nan(half(nan).bits, binary16));
    CHECK((half(nan).bits >> 15) == (payload >> 31));
    CHECK(half(nan).bits == detail::round_to_half(nan));
  }
}

TEST_CASE("bfloat16 widens every value exactly and back") {
  int wrong = 0;
  for (int i = 0; i < 0x10000; ++i) {
    const auto bits = static_cast<uint16_t>(i);
    const auto wide = static_cast<float>(bfloat16::from_bits(bits));
    if (is_nan(bits, brain16)) {
      wrong += !std::isnan(wide) || bfloat16(wide).bits != (bits | 0x40);
    } else {
      const double expected = (bits & 0x7fff) == 0x7f80 ? INFINITY : brain16.value(bits & 0x7fff);
      wrong +=
          std::abs(wide) != static_cast<float>(expected) || std::signbit(wide) != (i >= 0x8000);
      wrong += bfloat16(wide).bits != bits;
    }
  }
  CHECK(wrong == 0);
}

TEST_CASE("bfloat16 rounds to nearest even") {
  const Rounder expected(brain16);
  int wrong = 0;
  for (float x : hard_floats(brain16)) wrong += bfloat16(x).bits != expected(x);
  CHECK(wrong == 0);
  CHECK(bfloat16(std::numeric_limits<float>::max()).bits == 0x7f80);
  CHECK(bfloat16(1.00390625F).bits == 0x3f80);  // 1 + 2^-8, half way: down to even
  CHECK(bfloat16(1.01171875F).bits == 0x3f82);  // 1 + 3 * 2^-8, half way: up to even
  for (uint32_t payload : {0x7f800001U, 0x7fc00000U, 0x7fffffffU, 0xff800001U}) {
    const uint16_t bits = bfloat16(std::bit_cast<float>(payload)).bits;
    CHECK(is_nan(bits, brain16));
    CHECK((bits >> 15) == (payload >> 31));
  }
}
