// Operations on bits, and on predicates.
#include <bs/tests/emulator/operands.h>
#include <bs/tests/emulator/operations.h>

#include <bit>

namespace bs::emulator {

namespace {

/// Registers are combined as a whole: what lies above a type is not read.
template <class F>
Execute of_registers(const F&) {
  return [](Thread& t, const Instruction& i) {
    t.registers[i.to] = F()(t.registers[i.a], i.b < 0 ? 0 : t.registers[i.b]);
  };
}

Execute find_logic(const Opcode& o) {
  const std::string_view name = o.name();
  const bool is_predicate = o.type() == "pred";  // 0 or 1
  if (name == "and") return of_registers([](uint64_t x, uint64_t y) { return x & y; });
  if (name == "or") return of_registers([](uint64_t x, uint64_t y) { return x | y; });
  if (name == "xor") return of_registers([](uint64_t x, uint64_t y) { return x ^ y; });
  if (name == "not" && is_predicate)
    return of_registers([](uint64_t x, uint64_t) { return uint64_t{x == 0}; });
  if (name == "not") return of_registers([](uint64_t x, uint64_t) { return ~x; });
  if (name != "lop3") return nullptr;
  return [](Thread& t, const Instruction& i) {
    const auto a = t.read<uint32_t>(i.a), b = t.read<uint32_t>(i.b), c = t.read<uint32_t>(i.c);
    const auto table = t.read<uint32_t>(i.e);
    uint32_t result = 0;
    for (uint32_t k = 0; k < 8; ++k)
      if ((table >> k & 1) != 0)
        result |= ((k & 4) != 0 ? a : ~a) & ((k & 2) != 0 ? b : ~b) & ((k & 1) != 0 ? c : ~c);
    t.write(i.to, result);
  };
}

Execute find_shift(const Opcode& o) {
  if (o.name() == "shl")
    return for_integer(o.type(), []<class T>(Type<T>) -> Execute {
      return [](Thread& t, const Instruction& i) {
        const auto by = t.read<uint32_t>(i.b);
        const uint64_t bits = by >= 8 * sizeof(T) ? 0 : uint64_t(t.read<T>(i.a)) << by;
        t.write(i.to, static_cast<T>(bits));
      };
    });
  if (o.name() == "shr")
    return for_integer(o.type(), []<class T>(Type<T>) -> Execute {
      return [](Thread& t, const Instruction& i) {
        const uint32_t by = std::min<uint32_t>(t.read<uint32_t>(i.b), 8 * sizeof(T));
        const T x = t.read<T>(i.a);  // half at a time, for all of its bits may go
        t.write(i.to, static_cast<T>(x >> (by / 2) >> (by - by / 2)));
      };
    });
  if (o.name() != "shf") return nullptr;
  const auto funnel = []<bool left, bool wraps>(std::bool_constant<left>,
                                                std::bool_constant<wraps>) -> Execute {
    return [](Thread& t, const Instruction& i) {
      const uint64_t both = uint64_t{t.read<uint32_t>(i.b)} << 32 | t.read<uint32_t>(i.a);
      const auto asked = t.read<uint32_t>(i.c);
      const uint32_t by = wraps ? asked & 31 : std::min(asked, 32U);
      t.write(i.to, static_cast<uint32_t>(left ? both << by >> 32 : both >> by));
    };
  };
  const bool wraps = o.has("wrap");
  if (o.has("l"))
    return wraps ? funnel(std::true_type(), std::true_type())
                 : funnel(std::true_type(), std::false_type());
  return wraps ? funnel(std::false_type(), std::true_type())
               : funnel(std::false_type(), std::false_type());
}

/// Bit `at` and those above it, `length` of them.
template <class T>
T mask_of(uint32_t at, uint32_t length) {
  constexpr uint32_t all = 8 * sizeof(T);
  if (at >= all || length == 0) return 0;
  const T ones = static_cast<T>(~T{0} >> (all - std::min(length, all)));
  return static_cast<T>(ones << at);
}

template <class T>
Execute extract() {
  return [](Thread& t, const Instruction& i) {
    using U = std::make_unsigned_t<T>;
    constexpr uint32_t all = 8 * sizeof(T);
    const uint32_t at = t.read<uint32_t>(i.b) & 255, length = t.read<uint32_t>(i.c) & 255;
    const auto x = t.read<U>(i.a);
    const U field = at >= all ? U{0} : static_cast<U>(x >> at & mask_of<U>(0, length));
    const uint32_t top = std::min(at + length - 1, all - 1);
    const bool is_negative = std::is_signed_v<T> && length > 0 && (x >> top & 1) != 0;
    t.write(i.to, is_negative ? static_cast<U>(field | ~mask_of<U>(0, top - at + 1)) : field);
  };
}

template <class T>
Execute insert() {
  return [](Thread& t, const Instruction& i) {
    const uint32_t at = t.read<uint32_t>(i.c) & 255, length = t.read<uint32_t>(i.e) & 255;
    const T mask = mask_of<T>(at, length), into = t.read<T>(i.b);
    const T field = at < 8 * sizeof(T) ? static_cast<T>(t.read<T>(i.a) << at) : T{0};
    t.write(i.to, static_cast<T>((into & ~mask) | (field & mask)));
  };
}

Execute find_field(const Opcode& o) {
  if (o.name() == "bfe")
    return for_integer(o.type(), []<class T>(Type<T>) { return extract<T>(); });
  if (o.name() == "bfi") return o.type() == "b64" ? insert<uint64_t>() : insert<uint32_t>();
  if (o.name() == "bmsk")
    return [](Thread& t, const Instruction& i) {
      t.write(i.to, mask_of<uint32_t>(t.read<uint32_t>(i.a), t.read<uint32_t>(i.b)));
    };
  if (o.name() != "prmt" || o.words.size() != 2) return nullptr;
  return [](Thread& t, const Instruction& i) {
    const uint64_t bytes = uint64_t{t.read<uint32_t>(i.b)} << 32 | t.read<uint32_t>(i.a);
    const auto choice = t.read<uint32_t>(i.c);
    uint32_t result = 0;
    for (uint32_t k = 0; k < 4; ++k) {
      const uint32_t which = choice >> (4 * k) & 15;
      auto byte = static_cast<uint32_t>(bytes >> (8 * (which & 7)) & 255);
      if ((which & 8) != 0) byte = (byte & 0x80) != 0 ? 255 : 0;  // its sign, eight times
      result |= byte << (8 * k);
    }
    t.write(i.to, result);
  };
}

template <class T>
Execute find_count(const Opcode& o) {
  constexpr int all = 8 * sizeof(T);
  if (o.name() == "clz")
    return [](Thread& t, const Instruction& i) {
      t.write(i.to, static_cast<uint32_t>(std::countl_zero(t.read<T>(i.a))));
    };
  if (o.name() == "popc")
    return [](Thread& t, const Instruction& i) {
      t.write(i.to, static_cast<uint32_t>(std::popcount(t.read<T>(i.a))));
    };
  if (o.name() == "brev")
    return [](Thread& t, const Instruction& i) {
      const T x = t.read<T>(i.a);
      T turned = 0;
      for (int k = 0; k < all; ++k) turned |= static_cast<T>((x >> k & 1) << (all - 1 - k));
      t.write(i.to, turned);
    };
  return nullptr;
}

/// The number of the uppermost bit that differs from the sign, or how far it is from the top.
template <class T, bool from_top>
Execute find_uppermost() {
  return [](Thread& t, const Instruction& i) {
    const auto x = t.read<T>(i.a);
    const auto bits = static_cast<std::make_unsigned_t<T>>(std::is_signed_v<T> && x < 0 ? ~x : x);
    const int zeros = std::countl_zero(bits), all = 8 * sizeof(T);
    const int place = from_top ? zeros : all - 1 - zeros;
    t.write(i.to, bits == 0 ? ~uint32_t{0} : static_cast<uint32_t>(place));
  };
}

}  // namespace

Execute find_bit_operation(const Opcode& o) {
  for (const auto find : {find_logic, find_shift, find_field})
    if (const Execute found = find(o)) return found;
  if (o.name() == "bfind")
    return for_integer(o.type(), [&]<class T>(Type<T>) {
      return o.has("shiftamt") ? find_uppermost<T, true>() : find_uppermost<T, false>();
    });
  return o.type().ends_with("64") ? find_count<uint64_t>(o) : find_count<uint32_t>(o);
}

}  // namespace bs::emulator
