#include <bs/kernels/binary.h>
#include <bs/kernels/cuda/elementwise.cuh>
#include <bs/kernels/cuda/elementwise/elementary.cuh>

#include <concepts>
#include <type_traits>

namespace bs::cuda {

namespace {

// A sum of bools is their disjunction, a product their conjunction: operations on bits, of four of
// them at once, with no test of each element.
struct Add {
  template <class W>
  __device__ W operator()(W a, W b) const {
    if constexpr (std::is_same_v<W, bool>) return a | b;
    return a + b;
  }
  __device__ uint32_t words(uint32_t a, uint32_t b) const { return a | b; }
};
struct Sub {
  template <class W>
  __device__ W operator()(W a, W b) const {
    return a - b;
  }
};
struct Mul {
  template <class W>
  __device__ W operator()(W a, W b) const {
    if constexpr (std::is_same_v<W, bool>) return a & b;
    return a * b;
  }
  __device__ uint32_t words(uint32_t a, uint32_t b) const { return a & b; }
};
struct Div {
  template <class W>
  __device__ W operator()(W a, W b) const {
    return a / b;
  }
};

template <class W>
__device__ W integer_power(W base, W exponent) {
  if constexpr (std::is_signed_v<W>)
    if (exponent < 0) return base == 1 ? 1 : base == -1 ? (exponent % 2 == 0 ? 1 : -1) : 0;
  W result = 1;
  for (; exponent > 0; exponent /= 2, base *= base)
    if (exponent % 2 == 1) result *= base;
  return result;
}
struct WholePow {
  template <std::integral W>
  __device__ W operator()(W a, W b) const {
    if constexpr (std::is_same_v<W, bool>) return a || !b;
    return integer_power(a, b);
  }
};
/// Powers, of which those that `pow_of` does not hold for are CUDA's: out of line, for few are.
template <class T>
struct Pow {
  using W = wide<T>;
  __device__ W near(W a, W b, bool& holds) const { return pow_of<T>(a, b, holds); }
  static __device__ __noinline__ W beyond(W a, W b) { return ::pow(a, b); }
};
struct Cube {
  template <class W>
  __device__ W operator()(W a, W) const {
    return a * a * a;
  }
};

// A comparison with NaN is false: where a is NaN the comparison of a with itself picks it.
struct Minimum {
  template <class W>
  __device__ W operator()(W a, W b) const {
    return a < b || a != a ? a : b;
  }
  __device__ uint32_t words(uint32_t a, uint32_t b) const { return a & b; }
};
struct Maximum {
  template <class W>
  __device__ W operator()(W a, W b) const {
    return a > b || a != a ? a : b;
  }
  __device__ uint32_t words(uint32_t a, uint32_t b) const { return a | b; }
};

/// F of bytes and a number, which may be beyond their range: in i32, whose results wrap around.
template <class F>
struct BesideNumber {
  F f;
  int32_t number;
  __device__ uint8_t operator()(uint8_t a) const {
    return static_cast<uint8_t>(f(int32_t{a}, number));
  }
};

struct DivBackwardB {
  template <class W>
  __device__ W operator()(W a, W b, W dy) const {
    return -dy * (a / b) / b;
  }
};
template <class T>
struct PowBackwardA {
  using W = wide<T>;
  __device__ W near(W a, W b, W dy, bool& holds) const {
    const W power = pow_of<T>(a, b - 1, holds);
    return b == 0 ? W(0) : dy * (b * power);
  }
  static __device__ __noinline__ W beyond(W a, W b, W dy) {
    return b == 0 ? W(0) : dy * (b * ::pow(a, b - 1));
  }
};
/// The power and its logarithm are of one logarithm to the base two: NaN of a negative a, as of
/// CUDA's function, so that signs of powers do not matter.
template <class T>
struct PowBackwardB {
  using W = wide<T>;
  __device__ W near(W a, W b, W dy, bool& holds) const {
    constexpr float log_two = 0.693147181F;
    if constexpr (is_16_bit<T>) {
      const float log = log2_of(a), exponent = b * log;
      // Also beside a zero or one whose exponent is none, and of -0 to a negative power.
      holds &= (exponent < INFINITY) | (a < 0);
      const float y = dy * (whole_exp2_of(exponent) * (log * log_two));
      return a == 0 ? 0 : y;
    } else if constexpr (sizeof(T) == 4) {
      const TwoParts log = log2_parts_of(a);
      const float y = dy * (power_of(a, log, b, holds) * (log.high * log_two));
      return a < 0 ? NAN : y;
    } else {
      holds = false;
      return 0;
    }
  }
  static __device__ __noinline__ W beyond(W a, W b, W dy) {
    return a == 0 && b >= 0 ? W(0) : dy * (::pow(a, b) * ::log(a));
  }
};
struct MinimumBackward {
  template <class W>
  __device__ W operator()(W a, W b, W dy) const {
    return a < b ? dy : a == b ? dy / 2 : W(0);
  }
};
struct MaximumBackward {
  template <class W>
  __device__ W operator()(W a, W b, W dy) const {
    return a > b ? dy : a == b ? dy / 2 : W(0);
  }
};

template <class F>
void arithmetic(const char* op, F f, const Operand& a, const Operand& b, const Tensor& y,
                Stream stream) {
  const auto run = [&]<class T>(Type<T>) { map_alike<T>(op, f, y, stream, a, b); };
  if constexpr (std::is_invocable_v<F, float, float>)
    if (is_floating(y.dtype())) return visit_floating(op, y.dtype(), run);
  visit_index(op, y.dtype(), run);
}

/// The same for what may be computed in bytes.
template <class F>
void in_bytes(const char* op, F f, const Operand& a, const Operand& b, const Tensor& y,
              Stream stream) {
  if (y.dtype() == u8) return map_alike<uint8_t>(op, f, y, stream, a, b);
  if (y.dtype() == boolean) return map_alike<bool>(op, f, y, stream, a, b);
  arithmetic(op, f, a, b, y, stream);
}

/// The same where a number may stand beside bytes. Beside bools stand bools: other numbers turn
/// those to i64 or f32.
template <class F>
void in_bytes_beside(const char* op, F f, const Operand& a, const Operand& b, const Tensor& y,
                     Stream stream) {
  if (y.dtype() != u8 || !b.is_number) return in_bytes(op, f, a, b, y, stream);
  map_alike<uint8_t>(op, BesideNumber<F>{f, b.number.to<int32_t>()}, y, stream, a);
}

/// y = F(x...), all of y's dtype, which is floating.
template <template <class> class F, class... X>
void by_element(const char* op, const Tensor& y, Stream stream, const X&... x) {
  visit_floating(op, y.dtype(),
                 [&]<class T>(Type<T>) { map_alike<T>(op, F<device_type<T>>{}, y, stream, x...); });
}

template <class F>
void gradient(const char* op, F f, const Operand& a, const Operand& b, const Tensor& dy,
              const Tensor& dx, Stream stream) {
  visit_floating(op, dx.dtype(),
                 [&]<class T>(Type<T>) { map_alike<T>(op, f, dx, stream, a, b, dy); });
}

}  // namespace

void add(const Operand& a, const Operand& b, const Tensor& y, Stream stream) {
  in_bytes("add", Add{}, a, b, y, stream);
}

void sub(const Operand& a, const Operand& b, const Tensor& y, Stream stream) {
  in_bytes("sub", Sub{}, a, b, y, stream);
}

void mul(const Operand& a, const Operand& b, const Tensor& y, Stream stream) {
  in_bytes("mul", Mul{}, a, b, y, stream);
}

void div(const Operand& a, const Operand& b, const Tensor& y, Stream stream) {
  visit_floating("div", y.dtype(),
                 [&]<class T>(Type<T>) { map_alike<T>("div", Div{}, y, stream, a, b); });
}

void pow(const Operand& a, const Operand& b, const Tensor& y, Stream stream) {
  // Squares and cubes are what most powers are.
  const double number = b.tensor.defined() ? 0 : b.number.to<double>();
  if (number == 2) return mul(a, a, y, stream);
  if (number == 3) return in_bytes("pow", Cube{}, a, b, y, stream);
  if (!is_floating(y.dtype())) return in_bytes_beside("pow", WholePow{}, a, b, y, stream);
  by_element<Pow>("pow", y, stream, a, b);
}

void minimum(const Operand& a, const Operand& b, const Tensor& y, Stream stream) {
  in_bytes_beside("minimum", Minimum{}, a, b, y, stream);
}

void maximum(const Operand& a, const Operand& b, const Tensor& y, Stream stream) {
  in_bytes_beside("maximum", Maximum{}, a, b, y, stream);
}

void div_backward_b(const Operand& a, const Operand& b, const Tensor& dy, const Tensor& db,
                    Stream stream) {
  gradient("div_backward_b", DivBackwardB{}, a, b, dy, db, stream);
}

void pow_backward_a(const Operand& a, const Operand& b, const Tensor& dy, const Tensor& da,
                    Stream stream) {
  by_element<PowBackwardA>("pow_backward_a", da, stream, a, b, dy);
}

void pow_backward_b(const Operand& a, const Operand& b, const Tensor& dy, const Tensor& db,
                    Stream stream) {
  by_element<PowBackwardB>("pow_backward_b", db, stream, a, b, dy);
}

void minimum_backward(const Operand& a, const Operand& b, const Tensor& dy, const Tensor& da,
                      Stream stream) {
  gradient("minimum_backward", MinimumBackward{}, a, b, dy, da, stream);
}

void maximum_backward(const Operand& a, const Operand& b, const Tensor& dy, const Tensor& da,
                      Stream stream) {
  gradient("maximum_backward", MaximumBackward{}, a, b, dy, da, stream);
}

}  // namespace bs::cuda
