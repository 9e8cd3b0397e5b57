// Sums, products and functions of numbers.
#include <bs/tests/emulator/operands.h>
#include <bs/tests/emulator/operations.h>

#include <cfenv>
#include <cmath>
#include <limits>

namespace bs::emulator {

namespace {

template <class T>
inline constexpr bool is_signed_integer = std::is_integral_v<T>&& std::is_signed_v<T>;
/// Integers are computed with as unsigned ones, where overflow wraps around.
template <class T>
using Wrapping = typename std::conditional_t<std::is_integral_v<T>, std::make_unsigned<T>,
                                             std::type_identity<T>>::type;
/// As many bits again.
template <class T>
using Twice = std::conditional_t<
    sizeof(T) == 2, std::conditional_t<std::is_signed_v<T>, int32_t, uint32_t>,
    std::conditional_t<sizeof(T) == 4, std::conditional_t<std::is_signed_v<T>, int64_t, uint64_t>,
                       std::conditional_t<std::is_signed_v<T>, __int128, unsigned __int128>>>;

template <class T>
T wrapped(auto f, T x, T y) {
  using U = Wrapping<T>;
  // Of 16 bits as of 32: their product would be one of int, and overflow.
  using V = std::conditional_t<sizeof(U) < 4, uint32_t, U>;
  return static_cast<T>(f(static_cast<V>(static_cast<U>(x)), static_cast<V>(static_cast<U>(y))));
}

constexpr auto add = []<class T>(T x, T y) {
  if constexpr (std::is_integral_v<T>) {
    return wrapped([](auto p, auto q) { return p + q; }, x, y);
  } else {
    return x + y;
  }
};
constexpr auto subtract = []<class T>(T x, T y) {
  if constexpr (std::is_integral_v<T>) {
    return wrapped([](auto p, auto q) { return p - q; }, x, y);
  } else {
    return x - y;
  }
};
constexpr auto multiply = []<class T>(T x, T y) {
  if constexpr (std::is_integral_v<T>) {
    return wrapped([](auto p, auto q) { return p * q; }, x, y);
  } else {
    return x * y;
  }
};
constexpr auto divide = []<class T>(T x, T y) {
  if constexpr (std::is_integral_v<T>) {
    if (y == 0) return static_cast<T>(-1);
    if (is_signed_integer<T> && y == static_cast<T>(-1)) return subtract(T(0), x);
    return static_cast<T>(x / y);
  } else {
    return x / y;
  }
};
constexpr auto remainder_of = []<class T>(T x, T y) {
  if (y == 0) return x;
  return is_signed_integer<T> && y == static_cast<T>(-1) ? T(0) : static_cast<T>(x % y);
};
constexpr auto upper_half = []<class T>(T x, T y) {
  return static_cast<T>(static_cast<Twice<T>>(x) * static_cast<Twice<T>>(y) >> (8 * sizeof(T)));
};
constexpr auto fused = [](auto x, auto y, auto z) { return std::fma(x, y, z); };
constexpr auto from_zero_to_one = [](auto x) {
  using T = decltype(x);
  return x > 0 ? std::min(x, T(1)) : T(0);  // 0 of NaN
};

/// The smaller or the larger; of a number and NaN the number, or NaN where that counts. -0 < 0.
template <bool larger, bool keeps_nan>
struct Choice {
  template <class T>
  T operator()(T x, T y) const {
    if constexpr (std::is_floating_point_v<T>) {
      if (x != x || y != y) return keeps_nan ? std::numeric_limits<T>::quiet_NaN() : x != x ? y : x;
      if (x == y) return std::signbit(x) == larger ? y : x;
    }
    return (larger ? x > y : x < y) ? x : y;
  }
};

/// f of floats, rounded in another direction than to the nearest. Compiled so that the compiler
/// knows of it.
template <int mode, class F>
float rounded(const F& f, float x, float y, float z) {
  const int before = std::fegetround();
  std::fesetround(mode);
  volatile float p = x, q = y, r = z;
  volatile float result = f(p, q, r);
  std::fesetround(before);
  return result;
}

template <class F>
Execute in_direction(int mode, const F&) {
  const auto with = []<int direction>(std::integral_constant<int, direction>) -> Execute {
    return [](Thread& t, const Instruction& i) {
      const float z = i.c < 0 ? 0 : t.read<float>(i.c);
      t.write(i.to, rounded<direction>(F(), t.read<float>(i.a), t.read<float>(i.b), z));
    };
  };
  switch (mode) {
    case FE_DOWNWARD:
      return with(std::integral_constant<int, FE_DOWNWARD>());
    case FE_UPWARD:
      return with(std::integral_constant<int, FE_UPWARD>());
    default:
      return with(std::integral_constant<int, FE_TOWARDZERO>());
  }
}

/// Of f32 in another direction than the nearest; null for all other opcodes.
Execute find_rounded(const Opcode& o) {
  const int mode = o.has("rm")   ? FE_DOWNWARD
                   : o.has("rp") ? FE_UPWARD
                   : o.has("rz") ? FE_TOWARDZERO
                                 : FE_TONEAREST;
  if (mode == FE_TONEAREST || o.type() != "f32") return nullptr;
  if (o.name() == "add") return in_direction(mode, [](float x, float y, float) { return x + y; });
  if (o.name() == "sub") return in_direction(mode, [](float x, float y, float) { return x - y; });
  if (o.name() == "mul") return in_direction(mode, [](float x, float y, float) { return x * y; });
  if (o.name() == "div") return in_direction(mode, [](float x, float y, float) { return x / y; });
  if (o.name() == "fma") return in_direction(mode, fused);
  return nullptr;
}

/// x + y or x - y, which may take in a carry and give one.
template <bool takes, bool gives, bool subtracts, class T>
T with_carry(Thread& t, T x, T y) {
  using Wide = unsigned __int128;
  const uint64_t carry = takes && t.carry ? 1 : 0;
  const Wide sum = subtracts ? Wide{x} - y - carry : Wide{x} + y + carry;
  if (gives) t.carry = (sum >> (8 * sizeof(T)) & 1) != 0;
  return static_cast<T>(sum);
}

template <class T, bool takes, bool gives>
Execute find_carrying(const Opcode& o) {
  const std::string_view name = o.name().substr(0, 3);
  if (name == "add")
    return [](Thread& t, const Instruction& i) {
      t.write(i.to, with_carry<takes, gives, false>(t, t.read<T>(i.a), t.read<T>(i.b)));
    };
  if (name == "sub")
    return [](Thread& t, const Instruction& i) {
      t.write(i.to, with_carry<takes, gives, true>(t, t.read<T>(i.a), t.read<T>(i.b)));
    };
  if (name != "mad") return nullptr;
  if (o.has("hi"))
    return [](Thread& t, const Instruction& i) {
      const T upper = upper_half(t.read<T>(i.a), t.read<T>(i.b));
      t.write(i.to, with_carry<takes, gives, false>(t, upper, t.read<T>(i.c)));
    };
  return [](Thread& t, const Instruction& i) {
    const T lower = multiply(t.read<T>(i.a), t.read<T>(i.b));
    t.write(i.to, with_carry<takes, gives, false>(t, lower, t.read<T>(i.c)));
  };
}

template <class T>
Execute find_carrying(const Opcode& o) {
  const bool takes = o.name().size() == 4 && o.name().ends_with("c"), gives = o.has("cc");
  if (takes) return gives ? find_carrying<T, true, true>(o) : find_carrying<T, true, false>(o);
  return gives ? find_carrying<T, false, true>(o) : nullptr;
}

/// mul and mad, of the lower half of the product, the upper one, or all.
Execute find_product(const Opcode& o) {
  const bool adds = o.name() == "mad";
  if (!adds && o.name() != "mul") return nullptr;
  if (o.has("wide"))
    return for_integer(o.type(), [&]<class T>(Type<T>) -> Execute {
      using Wide = Twice<T>;
      if constexpr (sizeof(T) == 8) {
        return nullptr;
      } else if (adds) {
        return [](Thread& t, const Instruction& i) {
          const Wide product = multiply(Wide{t.read<T>(i.a)}, Wide{t.read<T>(i.b)});
          t.write(i.to, add(product, t.read<Wide>(i.c)));
        };
      } else {
        return [](Thread& t, const Instruction& i) {
          t.write(i.to, multiply(Wide{t.read<T>(i.a)}, Wide{t.read<T>(i.b)}));
        };
      }
    });
  if (adds && o.has("hi"))
    return for_integer(o.type(), [&]<class T>(Type<T>) {
      return ternary<T>([](T x, T y, T z) { return add(upper_half(x, y), z); });
    });
  if (adds)
    return for_integer(o.type(), [&]<class T>(Type<T>) {
      return ternary<T>([](T x, T y, T z) { return add(multiply(x, y), z); });
    });
  return o.has("hi") ? integer_binary(o.type(), upper_half) : number_binary(o.type(), multiply);
}

/// The sum of the products of four bytes: `dp4a` with the types of a and b.
Execute find_dot(const Opcode& o) {
  if (o.name() != "dp4a") return nullptr;
  const auto of = []<class A, class B>(Type<A>, Type<B>) -> Execute {
    return [](Thread& t, const Instruction& i) {
      const auto a = t.read<uint32_t>(i.a), b = t.read<uint32_t>(i.b);
      auto sum = t.read<uint32_t>(i.c);
      for (int k = 0; k < 32; k += 8)
        sum += static_cast<uint32_t>(static_cast<A>(a >> k) * static_cast<B>(b >> k));
      t.write(i.to, sum);
    };
  };
  const bool is_signed = o.words[1] == "s32";
  if (o.type() == "s32")
    return is_signed ? of(Type<int8_t>(), Type<int8_t>()) : of(Type<uint8_t>(), Type<int8_t>());
  return is_signed ? of(Type<int8_t>(), Type<uint8_t>()) : of(Type<uint8_t>(), Type<uint8_t>());
}

Execute find_choice(const Opcode& o) {
  const bool keeps_nan = o.has("NaN");
  if (o.name() == "min")
    return keeps_nan ? float_binary(o.type(), Choice<false, true>())
                     : number_binary(o.type(), Choice<false, false>());
  if (o.name() == "max")
    return keeps_nan ? float_binary(o.type(), Choice<true, true>())
                     : number_binary(o.type(), Choice<true, false>());
  return nullptr;
}

/// abs, neg and copysign.
Execute find_sign(const Opcode& o) {
  if (o.name() == "abs")
    return for_number(o.type(), [&]<class T>(Type<T>) {
      return unary<T>([]<class N>(N x) {
        if constexpr (std::is_integral_v<N>) {
          return x < 0 ? subtract(N(0), x) : x;
        } else {
          return std::abs(x);
        }
      });
    });
  if (o.name() == "neg")
    return for_number(o.type(), [&]<class T>(Type<T>) {
      return unary<T>([]<class N>(N x) {
        if constexpr (std::is_integral_v<N>) {
          return subtract(N(0), x);
        } else {
          return -x;
        }
      });
    });
  if (o.name() == "copysign")
    return for_float(o.type(), [&]<class T>(Type<T>) {
      return binary<T>([](auto sign, auto size) { return std::copysign(size, sign); });
    });
  return nullptr;
}

/// Denormal numbers become zeros.
float flushed(float x) {
  return std::abs(x) < std::numeric_limits<float>::min() ? std::copysign(0.0F, x) : x;
}

/// The upper 32 bits of an approximation are what PTX gives of f64.
double upper_bits(double x) {
  return std::bit_cast<double>(std::bit_cast<uint64_t>(x) & ~uint64_t{0xffffffff});
}

Execute find_function(const Opcode& o) {
  const std::string_view name = o.name(), type = o.type();
  const bool is_coarse = o.has("approx") && type == "f64", flushes = o.has("ftz") && type == "f32";
  if (name == "sqrt") return float_unary(type, [](auto x) { return std::sqrt(x); });
  if (name == "rsqrt")
    return is_coarse ? unary<double>([](double x) { return upper_bits(1 / std::sqrt(x)); })
                     : float_unary(type, [](auto x) { return 1 / std::sqrt(x); });
  if (name == "rcp")
    return is_coarse ? unary<double>([](double x) { return upper_bits(1 / x); })
                     : float_unary(type, [](auto x) { return 1 / x; });
  if (name == "ex2")
    return flushes ? unary<float>([](float x) { return flushed(std::exp2(flushed(x))); })
                   : float_unary(type, [](auto x) { return std::exp2(x); });
  if (name == "lg2")
    return flushes ? unary<float>([](float x) { return std::log2(flushed(x)); })
                   : float_unary(type, [](auto x) { return std::log2(x); });
  if (name == "sin") return float_unary(type, [](auto x) { return std::sin(x); });
  if (name == "cos") return float_unary(type, [](auto x) { return std::cos(x); });
  if (name == "tanh") return float_unary(type, [](auto x) { return std::tanh(x); });
  return nullptr;
}

Execute find_fused(const Opcode& o) {
  if (o.name() != "fma") return nullptr;
  if (o.has("sat"))
    return ternary<float>(
        [](float x, float y, float z) { return from_zero_to_one(std::fma(x, y, z)); });
  if (o.has("relu"))
    return for_float(o.type(), [&]<class T>(Type<T>) {
      return ternary<T>([](auto x, auto y, auto z) {
        const auto sum = std::fma(x, y, z);
        return sum < 0 ? 0 : sum;
      });
    });
  return for_float(o.type(), [&]<class T>(Type<T>) { return ternary<T>(fused); });
}

}  // namespace

Execute find_arithmetic(const Opcode& o) {
  if (const Execute found = find_rounded(o)) return found;
  const bool is_wide = o.type().ends_with("64");
  if (const Execute found = is_wide ? find_carrying<uint64_t>(o) : find_carrying<uint32_t>(o))
    return found;
  for (const auto find :
       {find_product, find_dot, find_choice, find_sign, find_function, find_fused})
    if (const Execute found = find(o)) return found;
  if (o.name() == "add")
    return o.has("sat") ? binary<float>([](float x, float y) { return from_zero_to_one(x + y); })
                        : number_binary(o.type(), add);
  if (o.name() == "sub") return number_binary(o.type(), subtract);
  if (o.name() == "div") return number_binary(o.type(), divide);
  if (o.name() == "rem") return integer_binary(o.type(), remainder_of);
  return nullptr;
}

}  // namespace bs::emulator
