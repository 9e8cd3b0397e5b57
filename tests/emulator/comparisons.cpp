// setp, set, slct and testp.
#include <bs/tests/emulator/operands.h>
#include <bs/tests/emulator/operations.h>

#include <cmath>

namespace bs::emulator {

namespace {

enum class Relation : uint8_t { eq, ne, lt, le, gt, ge, equ, neu, ltu, leu, gtu, geu, num, nan };

struct NamedRelation {
  const char* name;
  Relation relation;
};
constexpr NamedRelation relations[] = {
    {"eq", Relation::eq},   {"ne", Relation::ne},   {"lt", Relation::lt},   {"lo", Relation::lt},
    {"le", Relation::le},   {"ls", Relation::le},   {"gt", Relation::gt},   {"hi", Relation::gt},
    {"ge", Relation::ge},   {"hs", Relation::ge},   {"equ", Relation::equ}, {"neu", Relation::neu},
    {"ltu", Relation::ltu}, {"leu", Relation::leu}, {"gtu", Relation::gtu}, {"geu", Relation::geu},
    {"num", Relation::num}, {"nan", Relation::nan}};

/// Of NaN the relations that end in u hold, and nan.
template <Relation relation, class T>
bool compare(T x, T y) {
  switch (relation) {
    case Relation::eq:
      return x == y;
    case Relation::ne:
      return x < y || x > y;
    case Relation::lt:
      return x < y;
    case Relation::le:
      return x <= y;
    case Relation::gt:
      return x > y;
    case Relation::ge:
      return x >= y;
    case Relation::equ:
      return !(x < y || x > y);
    case Relation::neu:
      return x != y;
    case Relation::ltu:
      return !(x >= y);
    case Relation::leu:
      return !(x > y);
    case Relation::gtu:
      return !(x <= y);
    case Relation::geu:
      return !(x < y);
    case Relation::num:
      return x == x && y == y;
    case Relation::nan:
      return x != x || y != y;
  }
  return false;
}

template <Relation relation>
using Of = std::integral_constant<Relation, relation>;

/// f(Of<relation>()) by the relation's name; null where it is none.
template <class F>
Execute with_relation(std::string_view name, const F& f) {
  Execute found = nullptr;
  const auto try_all = [&]<int... number>(std::integer_sequence<int, number...>) {
    for (const NamedRelation& named : relations)
      if (named.name == name)
        ((static_cast<int>(named.relation) == number
              ? void(found = f(Of<static_cast<Relation>(number)>()))
              : void()),
         ...);
  };
  try_all(std::make_integer_sequence<int, static_cast<int>(Relation::nan) + 1>());
  return found;
}

/// How a comparison is combined with a predicate.
enum class Combination : uint8_t { both, either, one };

bool combined(int64_t how, bool x, bool y) {
  switch (static_cast<Combination>(how)) {
    case Combination::both:
      return x && y;
    case Combination::either:
      return x || y;
    default:
      return x != y;
  }
}

void write_predicates(Thread& t, const Instruction& i, bool first, bool second) {
  if (i.e >= 0) {
    const bool other = t.holds(i.e, i.c_is_not);
    first = combined(i.immediate, first, other);
    second = combined(i.immediate, second, other);
  }
  if (i.to >= 0) t.registers[i.to] = first ? 1 : 0;
  if (i.also_to >= 0) t.registers[i.also_to] = second ? 1 : 0;
}

/// Of pairs each half has a predicate; else the second is the contrary of the first.
template <class T, Relation relation>
Execute set_predicates() {
  return [](Thread& t, const Instruction& i) {
    const auto x = t.read<T>(i.a), y = t.read<T>(i.b);
    if constexpr (is_pair<T>) {
      write_predicates(t, i,
                       compare<relation>(static_cast<float>(x.low), static_cast<float>(y.low)),
                       compare<relation>(static_cast<float>(x.high), static_cast<float>(y.high)));
    } else if constexpr (is_narrow<T>) {
      const bool holds = compare<relation>(static_cast<float>(x), static_cast<float>(y));
      write_predicates(t, i, holds, !holds);
    } else {
      const bool holds = compare<relation>(x, y);
      write_predicates(t, i, holds, !holds);
    }
  };
}

/// 1 or all bits where it holds, in a number or in each half of one.
template <class T, Relation relation>
Execute set_number(bool as_float) {
  if constexpr (is_pair<T>) {
    if (as_float) return nullptr;
    return [](Thread& t, const Instruction& i) {
      const auto x = t.read<T>(i.a), y = t.read<T>(i.b);
      const bool low = compare<relation>(static_cast<float>(x.low), static_cast<float>(y.low));
      const bool high = compare<relation>(static_cast<float>(x.high), static_cast<float>(y.high));
      t.write(i.to, (low ? 0xffffU : 0U) | (high ? 0xffff0000U : 0U));
    };
  } else if constexpr (is_narrow<T>) {
    return nullptr;
  } else {
    if (as_float)
      return [](Thread& t, const Instruction& i) {
        t.write(i.to, compare<relation>(t.read<T>(i.a), t.read<T>(i.b)) ? 1.0F : 0.0F);
      };
    return [](Thread& t, const Instruction& i) {
      t.write(i.to, compare<relation>(t.read<T>(i.a), t.read<T>(i.b)) ? ~0U : 0U);
    };
  }
}

template <class T>
Execute test_property(const Opcode& o) {
  const auto test = []<class F>(const F&) -> Execute {
    return [](Thread& t, const Instruction& i) { t.registers[i.to] = F()(t.read<T>(i.a)) ? 1 : 0; };
  };
  if (o.has("finite")) return test([](T x) { return std::isfinite(x); });
  if (o.has("infinite")) return test([](T x) { return std::isinf(x); });
  if (o.has("number")) return test([](T x) { return !std::isnan(x); });
  if (o.has("notanumber")) return test([](T x) { return std::isnan(x); });
  if (o.has("normal")) return test([](T x) { return std::isnormal(x); });
  if (o.has("subnormal")) return test([](T x) { return std::fpclassify(x) == FP_SUBNORMAL; });
  return nullptr;
}

template <class F>
Execute for_compared(std::string_view type, const F& f) {
  return for_number(type, [&]<class T>(Type<T> as) -> Execute {
    if constexpr (std::is_same_v<T, Pair<float>>) {
      return nullptr;
    } else {
      return f(as);
    }
  });
}

}  // namespace

Execute find_comparison(const Opcode& o, Instruction& instruction) {
  const std::string_view name = o.name();
  if (name == "setp") {
    const Combination how = o.has("or")    ? Combination::either
                            : o.has("xor") ? Combination::one
                                           : Combination::both;
    instruction.immediate = static_cast<int64_t>(how);
    return with_relation(o.words[1], [&]<Relation relation>(Of<relation>) {
      return for_compared(o.type(), []<class T>(Type<T>) { return set_predicates<T, relation>(); });
    });
  }
  if (name == "set") {
    const std::string_view result = o.words[o.words.size() - 2];
    if (result != "f32" && result != "u32" && result != "s32") return nullptr;
    return with_relation(o.words[1], [&]<Relation relation>(Of<relation>) {
      return for_compared(
          o.type(), [&]<class T>(Type<T>) { return set_number<T, relation>(result == "f32"); });
    });
  }
  if (name == "slct")
    return [](Thread& t, const Instruction& i) {
      t.registers[i.to] = t.registers[t.read<int32_t>(i.c) >= 0 ? i.a : i.b];
    };
  if (name == "testp")
    return o.type() == "f64" ? test_property<double>(o) : test_property<float>(o);
  return nullptr;
}

}  // namespace bs::emulator
