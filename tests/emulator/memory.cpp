// Loads, stores and atomic operations.
#include <bs/tests/emulator/operands.h>
#include <bs/tests/emulator/operations.h>

#include <algorithm>

namespace bs::emulator {

namespace {

/// Where addresses count from. Addresses of all memory but the shared one are the host's.
enum class Space : uint8_t { host, shared, parameters };

template <Space space>
std::byte* place(const Thread& t, const Instruction& i, size_t bytes) {
  const uint64_t base = i.a < 0 ? 0 : t.registers[i.a];
  const auto offset = static_cast<uint64_t>(i.immediate);
  std::byte* at = nullptr;
  if constexpr (space == Space::shared) {
    at = t.cta->shared_at(static_cast<uint32_t>(base) + offset, bytes);
  } else if constexpr (space == Space::parameters) {
    at = t.cta->parameters + offset;
  } else {
    at = reinterpret_cast<std::byte*>(base + offset);
  }
  if (reinterpret_cast<uint64_t>(at) % bytes != 0) fail(*t.cta, "a misaligned address", &i);
  return at;
}

/// As many bytes as the elements have together are aligned to.
template <class T>
size_t bytes_of(const Instruction& i) {
  return sizeof(T) * static_cast<size_t>(std::max(1, i.elements()));
}

template <Space space, class T>
Execute load() {
  return [](Thread& t, const Instruction& i) {
    const std::byte* const from = place<space>(t, i, bytes_of<T>(i));
    const auto element = [&](int number, int to) {
      T value;
      std::memcpy(&value, from + static_cast<size_t>(number) * sizeof value, sizeof value);
      if (to >= 0) t.registers[to] = extended(value);
    };
    if (i.list.empty()) return element(0, i.to);
    for (int k = 0; k < i.elements(); ++k) element(k, i.list[static_cast<size_t>(k)]);
  };
}

template <Space space, class T>
Execute store() {
  return [](Thread& t, const Instruction& i) {
    std::byte* const to = place<space>(t, i, bytes_of<T>(i));
    if (i.list.empty()) {
      std::memcpy(to, t.registers + i.b, sizeof(T));
      return;
    }
    for (size_t k = 0; k < i.list.size(); ++k)
      std::memcpy(to + k * sizeof(T), t.registers + i.list[k], sizeof(T));
  };
}

/// What is there, the operand, and what to compare with, to what will be there.
struct Add {
  template <class T>
  T operator()(T old, T x, T) const {
    return static_cast<T>(old + x);
  }
};
struct Least {
  template <class T>
  T operator()(T old, T x, T) const {
    return std::min(old, x);
  }
};
struct Most {
  template <class T>
  T operator()(T old, T x, T) const {
    return std::max(old, x);
  }
};
struct Exchange {
  template <class T>
  T operator()(T, T x, T) const {
    return x;
  }
};
struct Swap {
  template <class T>
  T operator()(T old, T compared, T x) const {
    return old == compared ? x : old;
  }
};
template <class F>
struct Bits {
  template <class T>
  T operator()(T old, T x, T) const {
    if constexpr (std::is_integral_v<T>) {
      return static_cast<T>(F()(old, x));
    } else {
      return old;
    }
  }
};
struct CountUp {
  template <class T>
  T operator()(T old, T most, T) const {
    return old >= most ? T{0} : static_cast<T>(old + 1);
  }
};
struct CountDown {
  template <class T>
  T operator()(T old, T most, T) const {
    return old == T{0} || old > most ? most : static_cast<T>(old - 1);
  }
};

template <Space space, class T, class F>
Execute change() {
  return [](Thread& t, const Instruction& i) {
    std::byte* const at = place<space>(t, i, sizeof(T));
    T old;
    std::memcpy(&old, at, sizeof old);
    const T x = t.read<T>(i.b), y = i.c < 0 ? x : t.read<T>(i.c);
    T changed;
    if constexpr (is_pair<T>) {
      changed = elementwise([](float p, float q) { return p + q; }, old, x);
    } else {
      changed = F()(old, x, y);
    }
    std::memcpy(at, &changed, sizeof changed);
    if (i.to >= 0) t.registers[i.to] = extended(old);
  };
}

template <Space space, class F>
Execute change_of(std::string_view type) {
  if constexpr (std::is_same_v<F, Add>) {
    if (type == "f16x2") return change<space, Pair<Half>, F>();
    if (type == "bf16x2") return change<space, Pair<Brain>, F>();
  }
  return for_stored(type, [&]<class T>(Type<T>) { return change<space, T, F>(); });
}

template <Space space>
Execute find_change(const Opcode& o) {
  using And = Bits<decltype([](auto x, auto y) { return x & y; })>;
  using Or = Bits<decltype([](auto x, auto y) { return x | y; })>;
  using Xor = Bits<decltype([](auto x, auto y) { return x ^ y; })>;
  if (o.has("add")) return change_of<space, Add>(o.type());
  if (o.has("min")) return change_of<space, Least>(o.type());
  if (o.has("max")) return change_of<space, Most>(o.type());
  if (o.has("exch")) return change_of<space, Exchange>(o.type());
  if (o.has("cas")) return change_of<space, Swap>(o.type());
  if (o.has("and")) return change_of<space, And>(o.type());
  if (o.has("or")) return change_of<space, Or>(o.type());
  if (o.has("xor")) return change_of<space, Xor>(o.type());
  if (o.has("inc")) return change_of<space, CountUp>(o.type());
  if (o.has("dec")) return change_of<space, CountDown>(o.type());
  return nullptr;
}

template <Space space>
Execute load_of(std::string_view type) {
  if (type == "b128") return load<space, uint64_t>();  // of two registers
  return for_stored(type, []<class T>(Type<T>) { return load<space, T>(); });
}
template <Space space>
Execute store_of(std::string_view type) {
  if (type == "b128") return store<space, uint64_t>();
  return for_stored(type, []<class T>(Type<T>) { return store<space, T>(); });
}

}  // namespace

Execute find_memory_operation(const Opcode& o, const Instruction& instruction) {
  const std::string_view name = o.name();
  if (name == "ld" || name == "ldu") {
    if (o.has("param") && instruction.a < 0) return load_of<Space::parameters>(o.type());
    return o.is_shared() ? load_of<Space::shared>(o.type()) : load_of<Space::host>(o.type());
  }
  if (name == "st")
    return o.is_shared() ? store_of<Space::shared>(o.type()) : store_of<Space::host>(o.type());
  if (name == "atom" || name == "red")
    return o.is_shared() ? find_change<Space::shared>(o) : find_change<Space::host>(o);
  return nullptr;
}

}  // namespace bs::emulator
