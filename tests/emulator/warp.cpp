// What the lanes of a warp do together.
#include <bs/tests/emulator/operations.h>

#include <bit>
#include <functional>

namespace bs::emulator {

namespace {

/// f(lane, its thread) for the lanes of a mask.
template <class F>
void for_lanes(const Warp& warp, uint32_t mask, const F& f) {
  for (uint32_t rest = mask; rest != 0; rest &= rest - 1) {
    const int lane = std::countr_zero(rest);
    f(lane, *warp[static_cast<size_t>(lane)]);
  }
}

enum class Way : uint8_t { up, down, butterfly, index };

/// The lane that is read, by the formulas of the PTX ISA, and whether it is in the segment.
template <Way way>
std::pair<int, bool> partner(int lane, uint32_t b, uint32_t c) {
  const int by = static_cast<int>(b & 31), clamp = static_cast<int>(c & 31);
  const int segment = static_cast<int>(c >> 8 & 31);
  const int limit = (lane & segment) | (clamp & ~segment);
  switch (way) {
    case Way::up:
      return {lane - by, lane - by >= limit};
    case Way::down:
      return {lane + by, lane + by <= limit};
    case Way::butterfly:
      return {lane ^ by, (lane ^ by) <= limit};
    default: {
      const int from = (lane & segment) | (by & ~segment);
      return {from, from <= limit};
    }
  }
}

/// What a lane that takes no part would give is not defined.
constexpr uint32_t undefined = 0xdeadbeef;

template <Way way>
void shuffle(const Warp& warp, uint32_t mask, const Instruction& i) {
  std::array<uint32_t, warp_size> values;
  values.fill(undefined);
  for_lanes(warp, mask, [&](int lane, const Thread& t) {
    values[static_cast<size_t>(lane)] = t.read<uint32_t>(i.a);
  });
  for_lanes(warp, mask, [&](int lane, Thread& t) {
    const auto [from, inside] = partner<way>(lane, t.read<uint32_t>(i.b), t.read<uint32_t>(i.c));
    if (i.to >= 0) t.write(i.to, values[static_cast<size_t>(inside ? from : lane)]);
    if (i.also_to >= 0) t.registers[i.also_to] = inside ? 1 : 0;
  });
}

uint32_t ballot(const Warp& warp, uint32_t mask, const Instruction& i) {
  uint32_t votes = 0;
  for_lanes(warp, mask, [&](int lane, const Thread& t) {
    if (t.holds(i.a, i.a_is_not)) votes |= 1U << lane;
  });
  return votes;
}

ExecuteWarp find_vote(const Opcode& o) {
  if (o.has("ballot"))
    return [](const Warp& warp, uint32_t mask, const Instruction& i) {
      const uint32_t votes = ballot(warp, mask, i);
      for_lanes(warp, mask, [&](int, Thread& t) { t.write(i.to, votes); });
    };
  if (o.has("any"))
    return [](const Warp& warp, uint32_t mask, const Instruction& i) {
      const bool any = ballot(warp, mask, i) != 0;
      for_lanes(warp, mask, [&](int, Thread& t) { t.registers[i.to] = any ? 1 : 0; });
    };
  if (o.has("all"))
    return [](const Warp& warp, uint32_t mask, const Instruction& i) {
      const bool all = ballot(warp, mask, i) == mask;
      for_lanes(warp, mask, [&](int, Thread& t) { t.registers[i.to] = all ? 1 : 0; });
    };
  return nullptr;
}

template <class T>
void match(const Warp& warp, uint32_t mask, const Instruction& i) {
  std::array<uint32_t, warp_size> equal{};
  for_lanes(warp, mask, [&](int lane, const Thread& t) {
    for_lanes(warp, mask, [&](int other, const Thread& u) {
      if (t.read<T>(i.a) == u.template read<T>(i.a))
        equal[static_cast<size_t>(lane)] |= 1U << other;
    });
  });
  for_lanes(warp, mask,
            [&](int lane, Thread& t) { t.write(i.to, equal[static_cast<size_t>(lane)]); });
}

template <class T, class F>
ExecuteWarp reduce(const F&) {
  return [](const Warp& warp, uint32_t mask, const Instruction& i) {
    T result = warp[static_cast<size_t>(std::countr_zero(mask))]->read<T>(i.a);
    for_lanes(warp, mask & (mask - 1),
              [&](int, const Thread& t) { result = F()(result, t.template read<T>(i.a)); });
    for_lanes(warp, mask, [&](int, Thread& t) { t.write(i.to, result); });
  };
}

template <class T>
ExecuteWarp find_reduction(const Opcode& o) {
  if (o.has("add")) return reduce<T>(std::plus<T>());
  if (o.has("min")) return reduce<T>([](T x, T y) { return std::min(x, y); });
  if (o.has("max")) return reduce<T>([](T x, T y) { return std::max(x, y); });
  if (o.has("and")) return reduce<T>(std::bit_and<T>());
  if (o.has("or")) return reduce<T>(std::bit_or<T>());
  if (o.has("xor")) return reduce<T>(std::bit_xor<T>());
  return nullptr;
}

void elect(const Warp& warp, uint32_t mask, const Instruction& i) {
  const int first = std::countr_zero(mask);
  for_lanes(warp, mask, [&](int lane, Thread& t) {
    if (i.to >= 0) t.write(i.to, static_cast<uint32_t>(first));
    if (i.also_to >= 0) t.registers[i.also_to] = lane == first ? 1 : 0;
  });
}

}  // namespace

ExecuteWarp find_warp_operation(const Opcode& o) {
  const std::string_view name = o.name();
  if (name == "bar" || name == "barrier")
    return [](const Warp&, uint32_t, const Instruction&) {};  // all are here, which is all
  if (name == "shfl" && o.has("up")) return shuffle<Way::up>;
  if (name == "shfl" && o.has("down")) return shuffle<Way::down>;
  if (name == "shfl" && o.has("bfly")) return shuffle<Way::butterfly>;
  if (name == "shfl") return shuffle<Way::index>;
  if (name == "vote") return find_vote(o);
  if (name == "match" && o.has("any")) return o.type() == "b64" ? match<uint64_t> : match<uint32_t>;
  if (name == "redux")
    return o.type() == "s32" ? find_reduction<int32_t>(o) : find_reduction<uint32_t>(o);
  if (name == "elect") return elect;
  return find_matrix_operation(o);
}

}  // namespace bs::emulator
