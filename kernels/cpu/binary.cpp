#include <bs/kernels/binary.h>
#include <bs/kernels/cpu/elementwise.h>
#include <bs/kernels/cpu/vector_functions.h>

#include <cmath>
#include <concepts>

namespace bs::cpu {

namespace {

template <class W>
constexpr bool is_bool = std::is_same_v<W, bool>;

/// Integers are added and multiplied as unsigned ones, where overflow wraps around.
template <class W>
using Wrapping = typename std::conditional_t<std::is_integral_v<W> && !is_bool<W>,
                                             std::make_unsigned<W>, std::type_identity<W>>::type;

template <class W>
W integer_power(W base, W exponent) {
  if constexpr (std::is_signed_v<W>)
    if (exponent < 0) return base == 1 ? W(1) : base == -1 ? W(exponent % 2 == 0 ? 1 : -1) : W(0);
  Wrapping<W> result = 1;
  auto square = static_cast<Wrapping<W>>(base);
  for (; exponent > 0; exponent /= 2, square = static_cast<Wrapping<W>>(square * square))
    if (exponent % 2 == 1) result = static_cast<Wrapping<W>>(result * square);
  return static_cast<W>(result);
}

struct Power {
  template <class W>
  W operator()(W a, W b) const {
    if constexpr (is_bool<W>) {
      return static_cast<bool>(a | !b);
    } else if constexpr (std::is_integral_v<W>) {
      return integer_power(a, b);
    } else {
      return math::pow(a, b);
    }
  }
  template <std::floating_point W>
  static bool holds(W a, W b) {
    return math::holds_pow(a, b);
  }
  template <std::floating_point W>
  static W beyond(W a, W b) {
    return std::pow(a, b);
  }
};

/// Gradients of it, for a and for b.
struct PowerBackwardA {
  template <class W>
  W operator()(W a, W b, W dy) const {
    return b == 0 ? W(0) : dy * (b * math::pow(a, b - 1));
  }
  template <class W>
  static bool holds(W a, W b, W) {
    return math::holds_pow(a, b);
  }
  template <class W>
  static W beyond(W a, W b, W dy) {
    return b == 0 ? W(0) : dy * (b * std::pow(a, b - 1));
  }
};
struct PowerBackwardB {
  template <class W>
  W operator()(W a, W b, W dy) const {
    if constexpr (std::is_same_v<W, float>) return dy * math::pow_log(a, b);  // where it holds
    return a == 0 && b >= 0 ? W(0) : dy * math::pow_log(a, b);
  }
  template <class W>
  static bool holds(W a, W b, W) {
    return math::holds_pow(a, b);
  }
  template <class W>
  static W beyond(W a, W b, W dy) {
    return a == 0 && b >= 0 ? W(0) : dy * (std::pow(a, b) * std::log(a));
  }
};

/// The latter for results of 16 bits.
struct CoarsePowerBackwardB : PowerBackwardB {
  float operator()(float a, float b, float dy) const { return dy * math::coarse_pow_log(a, b); }
};

template <class F>
void arithmetic(const char* op, const F& f, const Operand& a, const Operand& b, const Tensor& y) {
  if (is_floating(y.dtype())) {
    visit_wide(op, y.dtype(), [&]<class W>(Type<W>) { map<W, W, W>(f, y, a, b); });
  } else {
    visit_index(op, y.dtype(), [&]<class W>(Type<W>) { map<W, W, W>(f, y, a, b); });
  }
}

/// The same for what may be computed in bytes. Of bools each function is one of bits, which g++
/// does 32 at a time; else it widens them first.
template <class F>
void in_bytes(const char* op, const F& f, const Operand& a, const Operand& b, const Tensor& y) {
  if (y.dtype() == boolean) return map<bool, bool, bool>(f, y, a, b);
  if (y.dtype() == u8) return map<uint8_t, uint8_t, uint8_t>(f, y, a, b);
  arithmetic(op, f, a, b, y);
}

/// y = f(a, b) of bytes and a number, which may be beyond their range: in i32, whose results wrap
/// around. Says whether it was that. Beside bools stand bools: other numbers turn those to i64 or
/// f32.
template <class F>
bool beside_number(const F& f, const Operand& a, const Operand& b, const Tensor& y) {
  if (y.dtype() != u8 || !b.is_number) return false;
  const auto number = b.number.to<int32_t>();
  const auto wrapped = [&](uint8_t p) { return static_cast<uint8_t>(f(int32_t{p}, number)); };
  map<uint8_t, uint8_t>(wrapped, y, a);
  return true;
}

template <class F>
void gradient(const char* op, const F& f, const Operand& a, const Operand& b, const Tensor& dy,
              const Tensor& dx) {
  visit_wide(op, dx.dtype(), [&]<class W>(Type<W>) { map<W, W, W, W>(f, dx, a, b, dy); });
}

}  // namespace

void add(const Operand& a, const Operand& b, const Tensor& y, Stream) {
  const auto f = []<class W>(W p, W q) {
    if constexpr (is_bool<W>) {
      return static_cast<bool>(p | q);
    } else {
      return static_cast<W>(static_cast<Wrapping<W>>(p) + static_cast<Wrapping<W>>(q));
    }
  };
  in_bytes("add", f, a, b, y);
}

void sub(const Operand& a, const Operand& b, const Tensor& y, Stream) {
  const auto f = []<class W>(W p, W q) {
    if constexpr (is_bool<W>) {
      return static_cast<bool>(p ^ q);  // -1 is true as well
    } else {
      return static_cast<W>(static_cast<Wrapping<W>>(p) - static_cast<Wrapping<W>>(q));
    }
  };
  in_bytes("sub", f, a, b, y);
}

void mul(const Operand& a, const Operand& b, const Tensor& y, Stream) {
  const auto f = []<class W>(W p, W q) {
    if constexpr (is_bool<W>) {
      return static_cast<bool>(p & q);
    } else {
      return static_cast<W>(static_cast<Wrapping<W>>(p) * static_cast<Wrapping<W>>(q));
    }
  };
  in_bytes("mul", f, a, b, y);
}

void div(const Operand& a, const Operand& b, const Tensor& y, Stream) {
  visit_wide("div", y.dtype(),
             [&]<class W>(Type<W>) { map<W, W, W>([](W p, W q) { return p / q; }, y, a, b); });
}

void pow(const Operand& a, const Operand& b, const Tensor& y, Stream) {
  // Squares and cubes are what most powers are.
  const double number = b.tensor.defined() ? 0 : b.number.to<double>();
  if (number == 2) return mul(a, a, y, {});
  const auto cube = []<class W>(W p, W q) {
    if constexpr (std::is_floating_point_v<W>) {
      return p * p * p;
    } else {
      return Power()(p, q);
    }
  };
  if (number == 3) return in_bytes("pow", cube, a, b, y);
  if (!beside_number(Power(), a, b, y)) in_bytes("pow", Power(), a, b, y);
}

// A comparison with NaN is false: where p is NaN the comparison of p with itself picks it.
void minimum(const Operand& a, const Operand& b, const Tensor& y, Stream) {
  const auto f = []<class W>(W p, W q) {
    if constexpr (is_bool<W>) {
      return static_cast<bool>(p & q);
    } else {
      return p < q || p != p ? p : q;
    }
  };
  if (!beside_number(f, a, b, y)) in_bytes("minimum", f, a, b, y);
}

void maximum(const Operand& a, const Operand& b, const Tensor& y, Stream) {
  const auto f = []<class W>(W p, W q) {
    if constexpr (is_bool<W>) {
      return static_cast<bool>(p | q);
    } else {
      return p > q || p != p ? p : q;
    }
  };
  if (!beside_number(f, a, b, y)) in_bytes("maximum", f, a, b, y);
}

void div_backward_b(const Operand& a, const Operand& b, const Tensor& dy, const Tensor& db,
                    Stream) {
  const auto f = []<class W>(W p, W q, W d) { return -d * (p / q) / q; };
  gradient("div_backward_b", f, a, b, dy, db);
}

void pow_backward_a(const Operand& a, const Operand& b, const Tensor& dy, const Tensor& da,
                    Stream) {
  gradient("pow_backward_a", PowerBackwardA(), a, b, dy, da);
}

void pow_backward_b(const Operand& a, const Operand& b, const Tensor& dy, const Tensor& db,
                    Stream) {
  if (is_low_precision(db.dtype()))
    return map<float, float, float, float>(CoarsePowerBackwardB(), db, a, b, dy);
  gradient("pow_backward_b", PowerBackwardB(), a, b, dy, db);
}

void minimum_backward(const Operand& a, const Operand& b, const Tensor& dy, const Tensor& da,
                      Stream) {
  const auto f = []<class W>(W p, W q, W d) { return p < q ? d : p == q ? d / 2 : W(0); };
  gradient("minimum_backward", f, a, b, dy, da);
}

void maximum_backward(const Operand& a, const Operand& b, const Tensor& dy, const Tensor& da,
                      Stream) {
  const auto f = []<class W>(W p, W q, W d) { return p > q ? d : p == q ? d / 2 : W(0); };
  gradient("maximum_backward", f, a, b, dy, da);
}

}  // namespace bs::cpu
