#include <bs/kernels/cpu/elementwise.h>
#include <bs/kernels/cpu/vector_functions.h>
#include <bs/kernels/rounding.h>

#include <cmath>
#include <limits>

namespace bs::cpu {

namespace {

/// The rest of a division by q, which has the dividend's sign.
template <class W>
W in_divisors_sign(W rest, W q) {
  return rest != 0 && (rest < 0) != (q < 0) ? static_cast<W>(rest + q) : rest;
}

struct Remainder {
  template <class W>
  W operator()(W p, W q) const {
    return in_divisors_sign(math::remainder(p, q), q);
  }
  template <class W>
  static bool holds(W p, W q) {
    return math::holds_remainder(p, q);
  }
  template <class W>
  static W beyond(W p, W q) {
    return in_divisors_sign(std::fmod(p, q), q);
  }
};

/// floor(a / b) of the numbers themselves, not of their rounded quotient.
float floor_of_quotient(float p, float q) {
  return static_cast<float>(
      std::floor(double{p} / q));  // below 2^28 no double is that near a whole
}
double floor_of_quotient(double p, double q) {
  const double n = std::floor(p / q), rest = std::fma(-n, q, p);
  return rest != 0 && (rest < 0) != (q < 0) ? n - 1 : n;
}

}  // namespace

void floor(const Tensor& x, const Tensor& y, Stream) {
  map_floats(
      "floor", [](auto v) { return std::floor(v); }, x, y);
}

void ceil(const Tensor& x, const Tensor& y, Stream) {
  map_floats(
      "ceil", [](auto v) { return std::ceil(v); }, x, y);
}

void round(const Tensor& x, const Tensor& y, Stream) {
  map_floats(
      "round", [](auto v) { return std::nearbyint(v); }, x, y);
}

void trunc(const Tensor& x, const Tensor& y, Stream) {
  map_floats(
      "trunc", [](auto v) { return std::trunc(v); }, x, y);
}

void sign(const Tensor& x, const Tensor& y, Stream) {
  map_floats(
      "sign", []<class W>(W v) { return v > 0   ? W(1)
                                        : v < 0 ? W(-1)
                                                : W(0); }, x, y);
}

void isinf(const Tensor& x, const Tensor& y, Stream) {
  visit_wide("isinf", x.dtype(), [&]<class W>(Type<W>) {
    constexpr W infinity = std::numeric_limits<W>::infinity();
    map<bool, W>([](W v) { return v == infinity || v == -infinity; }, y, x);
  });
}

void isfinite(const Tensor& x, const Tensor& y, Stream) {
  visit_wide("isfinite", x.dtype(), [&]<class W>(Type<W>) {
    constexpr W infinity = std::numeric_limits<W>::infinity();
    map<bool, W>([](W v) { return std::abs(v) < infinity; }, y, x);
  });
}

void remainder_backward_b(const Operand& a, const Operand& b, const Tensor& dy, const Tensor& db,
                          Stream) {
  visit_wide("remainder_backward_b", db.dtype(), [&]<class W>(Type<W>) {
    map<W, W, W, W>([](W p, W q, W d) { return -(d * floor_of_quotient(p, q)); }, db, a, b, dy);
  });
}

void remainder(const Operand& a, const Operand& b, const Tensor& y, Stream) {
  if (is_floating(y.dtype()))
    return visit_wide("remainder", y.dtype(),
                      [&]<class W>(Type<W>) { map<W, W, W>(Remainder(), y, a, b); });
  const auto f = []<class W>(W p, W q) {
    if (q == 0 || q == -1) return W(0);  // the lowest integer has no quotient by -1
    return in_divisors_sign(static_cast<W>(p % q), q);
  };
  visit_index("remainder", y.dtype(), [&]<class W>(Type<W>) { map<W, W, W>(f, y, a, b); });
}

}  // namespace bs::cpu
