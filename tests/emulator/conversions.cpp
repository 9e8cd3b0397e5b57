// cvt between all types, and cvta between spaces of memory.
#include <bs/tests/emulator/operands.h>
#include <bs/tests/emulator/operations.h>

#include <cmath>
#include <limits>

namespace bs::emulator {

namespace {

/// What an opcode says besides its types.
enum Flags : int64_t { saturates = 1, keeps_positive = 2, to_whole = 4, towards_zero = 8 };

enum class Whole : uint8_t { nearest, towards_zero, down, up };

double rounded(double value, Whole how) {
  switch (how) {
    case Whole::nearest:
      return std::nearbyint(value);
    case Whole::towards_zero:
      return std::trunc(value);
    case Whole::down:
      return std::floor(value);
    default:
      return std::ceil(value);
  }
}

/// NaN becomes 0, of 64 bits the number of its sign alone; what is out of range the nearest limit.
template <class T>
T whole_number(double value, Whole how) {
  using Limits = std::numeric_limits<T>;
  if (std::isnan(value)) return sizeof(T) < 8 ? T{0} : static_cast<T>(uint64_t{1} << 63);
  value = rounded(value, how);
  if (value <= static_cast<double>(Limits::min())) return Limits::min();
  if (value >= static_cast<double>(Limits::max())) return Limits::max();
  return static_cast<T>(value);
}

template <class T>
double widened(T value) {
  if constexpr (is_narrow<T>) {
    return static_cast<double>(static_cast<float>(value));
  } else {
    return static_cast<double>(value);
  }
}

template <class To, class From>
To clamped(From value) {
  const auto wide = static_cast<__int128>(value);
  const __int128 low = std::numeric_limits<To>::min(), high = std::numeric_limits<To>::max();
  return static_cast<To>(std::clamp(wide, low, high));
}

template <class To>
void write_float(Thread& t, const Instruction& i, double value) {
  if ((i.immediate & saturates) != 0) value = value > 0 ? std::min(value, 1.0) : 0;
  if ((i.immediate & keeps_positive) != 0 && value < 0) value = 0;
  if constexpr (std::is_same_v<To, double>) {
    t.write(i.to, value);
  } else {
    auto single = static_cast<float>(value);
    if ((i.immediate & towards_zero) != 0 &&
        std::abs(static_cast<double>(single)) > std::abs(value))
      single = std::nextafter(single, 0.0F);
    t.write(i.to, static_cast<To>(single));
  }
}

template <class To, class From, Whole how>
Execute convert() {
  return [](Thread& t, const Instruction& i) {
    const auto from = t.read<From>(i.a);
    if constexpr (std::is_integral_v<To> && std::is_integral_v<From>) {
      const bool clamps = (i.immediate & saturates) != 0;
      t.registers[i.to] = extended(clamps ? clamped<To>(from) : static_cast<To>(from));
    } else if constexpr (std::is_integral_v<To>) {
      t.registers[i.to] = extended(whole_number<To>(widened(from), how));
    } else if constexpr (std::is_integral_v<From>) {
      if constexpr (is_narrow<To>) {
        t.write(i.to, To(static_cast<float>(from)));
      } else {
        t.write(i.to, static_cast<To>(from));
      }
    } else {
      const double value = widened(from);
      write_float<To>(t, i, (i.immediate & to_whole) != 0 ? rounded(value, how) : value);
    }
  };
}

template <class F>
Execute for_converted(std::string_view type, const F& f) {
  if (type == "f16") return f(Type<Half>());
  if (type == "bf16") return f(Type<Brain>());
  return for_stored(type, f);
}

/// Two floats in one register, the first operand above.
template <class T>
Execute pack() {
  return [](Thread& t, const Instruction& i) {
    const auto part = [&](int from) {
      const auto value = t.read<float>(from);
      return T((i.immediate & keeps_positive) != 0 && value < 0 ? 0.0F : value);
    };
    t.write(i.to, Pair<T>{part(i.b), part(i.a)});
  };
}

/// Two numbers of eight bits as f16.
template <class T>
Execute unpack() {
  return [](Thread& t, const Instruction& i) {
    const auto pair = t.read<Pair<T>>(i.a);
    t.write(i.to,
            Pair<Half>{Half(static_cast<float>(pair.low)), Half(static_cast<float>(pair.high))});
  };
}

Execute find_packed(std::string_view to, std::string_view from) {
  if (from == "f32") {
    if (to == "f16x2") return pack<Half>();
    if (to == "bf16x2") return pack<Brain>();
    if (to == "e4m3x2") return pack<E4m3>();
    if (to == "e5m2x2") return pack<E5m2>();
  }
  if (to == "f16x2" && from == "e4m3x2") return unpack<E4m3>();
  if (to == "f16x2" && from == "e5m2x2") return unpack<E5m2>();
  if (to == "tf32")
    return [](Thread& t, const Instruction& i) {
      const auto bits = t.read<uint32_t>(i.a);
      const bool is_finite = (bits & 0x7f800000) != 0x7f800000;
      t.write(i.to, is_finite ? (bits + 0x1000) & 0xffffe000 : bits);  // ties away from zero
    };
  return nullptr;
}

Execute find_address(const Opcode& o) {
  if (!o.has("shared"))
    return [](Thread& t, const Instruction& i) { t.registers[i.to] = t.registers[i.a]; };
  if (o.has("to"))
    return [](Thread& t, const Instruction& i) {
      t.registers[i.to] = t.registers[i.a] - reinterpret_cast<uint64_t>(t.cta->shared);
    };
  return [](Thread& t, const Instruction& i) {
    t.registers[i.to] = reinterpret_cast<uint64_t>(t.cta->shared_at(t.read<uint32_t>(i.a), 0));
  };
}

}  // namespace

Execute find_conversion(const Opcode& o, Instruction& instruction) {
  if (o.name() == "cvta") return find_address(o);
  if (o.name() != "cvt") return nullptr;
  Whole how = Whole::nearest;
  for (const std::string_view word : o.words) {
    const bool is_whole = word == "rni" || word == "rzi" || word == "rmi" || word == "rpi";
    if (is_whole) instruction.immediate |= to_whole;
    if (word == "rzi") how = Whole::towards_zero;
    if (word == "rmi") how = Whole::down;
    if (word == "rpi") how = Whole::up;
    if (word == "rz") instruction.immediate |= towards_zero;
    if (word == "sat" || word == "satfinite") instruction.immediate |= saturates;
    if (word == "relu") instruction.immediate |= keeps_positive;
  }
  const std::string_view to = o.words[o.words.size() - 2], from = o.type();
  if (const Execute found = find_packed(to, from)) return found;
  return for_converted(to, [&]<class To>(Type<To>) {
    return for_converted(from, [&]<class From>(Type<From>) {
      switch (how) {
        case Whole::nearest:
          return convert<To, From, Whole::nearest>();
        case Whole::towards_zero:
          return convert<To, From, Whole::towards_zero>();
        case Whole::down:
          return convert<To, From, Whole::down>();
        default:
          return convert<To, From, Whole::up>();
      }
    });
  });
}

}  // namespace bs::emulator
