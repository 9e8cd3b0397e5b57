// Barriers in memory, and copies that run beside a kernel. Here they are done at once.
#include <bs/tests/emulator/operands.h>
#include <bs/tests/emulator/operations.h>
#include <bs/tests/emulator/tensor_map.h>

#include <span>

namespace bs::emulator {

namespace {

/// What an mbarrier knows; its 64 bits have 20, 20, 1 and 23 of these.
struct Barrier {
  uint64_t pending = 0, expected = 0, phase = 0;
  int64_t bytes = 0;  ///< that are awaited still; fewer than 0 have come before they were

  static constexpr int count_bits = 20, phase_at = 2 * count_bits, bytes_at = phase_at + 1;
  static constexpr uint64_t counts = (uint64_t{1} << count_bits) - 1;

  Barrier() = default;
  explicit Barrier(uint64_t bits)
      : pending(bits & counts),
        expected(bits >> count_bits & counts),
        phase(bits >> phase_at & 1),
        bytes(static_cast<int64_t>(bits) >> bytes_at) {}
  uint64_t bits() const {
    return pending | expected << count_bits | phase << phase_at |
           static_cast<uint64_t>(bytes) << bytes_at;
  }
};

Barrier read_barrier(const Thread& t, uint64_t address) {
  uint64_t bits = 0;
  std::memcpy(&bits, t.cta->shared_at(address, sizeof bits), sizeof bits);
  return Barrier(bits);
}

void write_barrier(const Thread& t, uint64_t address, const Barrier& barrier) {
  const uint64_t bits = barrier.bits();
  std::memcpy(t.cta->shared_at(address, sizeof bits), &bits, sizeof bits);
}

/// Threads arrive, and bytes are awaited or, where they are negative, have come.
void arrive(const Thread& t, uint64_t address, uint32_t threads, int64_t bytes) {
  Barrier barrier = read_barrier(t, address);
  if (barrier.pending < threads) fail(*t.cta, "more arrive at an mbarrier than it expects");
  barrier.pending -= threads;
  barrier.bytes += bytes;
  if (barrier.pending == 0 && barrier.bytes == 0) {
    barrier.pending = barrier.expected;
    barrier.phase ^= 1;
  }
  write_barrier(t, address, barrier);
}

uint64_t address_of(const Thread& t, const Instruction& i) {
  return t.read<uint32_t>(i.a) + static_cast<uint64_t>(i.immediate);
}

/// Steps that a thread is charged for having waited in vain, so that others have their turn.
constexpr uint64_t steps_of_wait = 5000;

Execute find_barrier(const Opcode& o) {
  const std::string_view what = o.words[1];
  if (what == "init")
    return [](Thread& t, const Instruction& i) {
      Barrier barrier;
      barrier.pending = barrier.expected = t.read<uint32_t>(i.b);
      write_barrier(t, address_of(t, i), barrier);
    };
  if (what == "inval") return [](Thread&, const Instruction&) {};
  if (what == "arrive") {
    if (o.has("expect_tx"))
      return [](Thread& t, const Instruction& i) {
        const Barrier before = read_barrier(t, address_of(t, i));
        arrive(t, address_of(t, i), 0, t.read<uint32_t>(i.b));
        arrive(t, address_of(t, i), 1, 0);
        if (i.to >= 0) t.registers[i.to] = before.bits();
      };
    return [](Thread& t, const Instruction& i) {
      const Barrier before = read_barrier(t, address_of(t, i));
      arrive(t, address_of(t, i), i.b < 0 ? 1 : t.read<uint32_t>(i.b), 0);
      if (i.to >= 0) t.registers[i.to] = before.bits();
    };
  }
  if (what == "expect_tx")
    return [](Thread& t, const Instruction& i) {
      arrive(t, address_of(t, i), 0, t.read<uint32_t>(i.b));
    };
  if (what == "complete_tx")
    return [](Thread& t, const Instruction& i) {
      arrive(t, address_of(t, i), 0, -int64_t{t.read<uint32_t>(i.b)});
    };
  if (what != "try_wait" && what != "test_wait") return nullptr;
  if (o.has("parity"))
    return [](Thread& t, const Instruction& i) {
      const bool done = read_barrier(t, address_of(t, i)).phase != (t.read<uint32_t>(i.b) & 1);
      t.registers[i.to] = done ? 1 : 0;
      if (!done) t.steps += steps_of_wait;
    };
  return [](Thread& t, const Instruction& i) {
    const bool done = read_barrier(t, address_of(t, i)).phase != Barrier(t.registers[i.b]).phase;
    t.registers[i.to] = done ? 1 : 0;
    if (!done) t.steps += steps_of_wait;
  };
}

/// The same address of the CTA `rank` of the cluster.
uint64_t of_rank(uint64_t address, uint64_t rank) {
  return (address & 0xffffff) | (rank + 1) << 24;
}

/// f(address, barrier) for each CTA that a copy goes to.
template <class F>
void for_targets(const Thread& t, const Instruction& i, const F& f) {
  const uint64_t to = t.read<uint32_t>(i.a), barrier = t.read<uint32_t>(i.e);
  if (i.c < 0) return f(to, barrier);
  const auto mask = t.read<uint16_t>(i.c);
  for (uint64_t rank = 0; rank < t.cta->cluster.size(); ++rank)
    if ((mask >> rank & 1) != 0) f(of_rank(to, rank), of_rank(barrier, rank));
}

TensorMap map_of(const Thread& t, const Instruction& i) {
  TensorMap map;
  std::memcpy(&map, reinterpret_cast<const void*>(t.registers[i.b] + uint64_t(i.b_immediate)),
              sizeof map);
  if (map.is_map != TensorMap::sign) fail(*t.cta, "no tensor map", &i);
  return map;
}

/// The address of a coordinate, or null outside of the tensor.
std::byte* element_at(const TensorMap& map, std::span<const int64_t> at) {
  uint64_t address = map.address;
  for (size_t d = 0; d < map.rank; ++d) {
    if (at[d] < 0 || at[d] > int64_t{map.last[d]}) return nullptr;
    address += static_cast<uint64_t>(at[d]) * (d == 0 ? map.element_bytes : map.strides[d - 1]);
  }
  return reinterpret_cast<std::byte*>(address);
}

std::array<int64_t, 5> coordinates(const Thread& t, const Instruction& i) {
  std::array<int64_t, 5> at{};
  for (size_t d = 0; d < i.list.size() && d < at.size(); ++d) at[d] = t.read<int32_t>(i.list[d]);
  return at;
}

/// Between a box of a tensor and shared memory from `begin` on; zeros lie outside of the tensor.
void copy_box(const Thread& t, const Instruction& i, const TensorMap& map, uint64_t begin,
              bool loads) {
  constexpr uint64_t alignment = 128;
  if (begin % alignment != 0) fail(*t.cta, "a misaligned box", &i);
  const std::array<int64_t, 5> first = coordinates(t, i);
  uint64_t elements = 1;
  for (size_t d = 0; d < map.rank; ++d) elements *= map.box[d];
  for (uint64_t number = 0; number < elements; ++number) {
    std::array<int64_t, 5> at = first;
    uint64_t rest = number;
    for (size_t d = 0; d < map.rank; rest /= map.box[d++])
      at[d] += static_cast<int64_t>(rest % map.box[d]);
    std::byte* const element = element_at(map, at);
    std::byte* const shared = t.cta->shared_at(
        swizzled(begin + number * map.element_bytes, map.swizzle), map.element_bytes);
    if (!loads && element != nullptr) std::memcpy(element, shared, map.element_bytes);
    if (!loads) continue;
    if (element != nullptr) {
      std::memcpy(shared, element, map.element_bytes);
    } else {
      std::memset(shared, 0, map.element_bytes);
    }
  }
}

int64_t box_bytes(const TensorMap& map) {
  int64_t bytes = map.element_bytes;
  for (size_t d = 0; d < map.rank; ++d) bytes *= map.box[d];
  return bytes;
}

/// Channels of pixels one after the other, as the filter's element at the offsets meets them.
void copy_pixels(const Thread& t, const Instruction& i, const TensorMap& map, uint64_t begin) {
  const std::array<int64_t, 5> all = coordinates(t, i);  // and the offsets behind them
  std::array<int64_t, 3> pixel = {all[1], all[2], all[3]};
  const std::array<int64_t, 2> offset = {t.read<uint16_t>(i.list[4]), t.read<uint16_t>(i.list[5])};
  for (uint64_t number = 0; number < map.box[1]; ++number) {
    for (uint64_t c = 0; c < map.box[0]; ++c) {
      const std::array<int64_t, 5> at = {all[0] + static_cast<int64_t>(c), pixel[0] + offset[0],
                                         pixel[1] + offset[1], pixel[2]};
      const uint64_t place = begin + (number * map.box[0] + c) * map.element_bytes;
      std::byte* const shared = t.cta->shared_at(swizzled(place, map.swizzle), map.element_bytes);
      const std::byte* const element = element_at(map, at);
      if (element != nullptr) {
        std::memcpy(shared, element, map.element_bytes);
      } else {
        std::memset(shared, 0, map.element_bytes);
      }
    }
    for (size_t d = 0; d < 2; ++d) {
      pixel[d] += map.steps[d];
      if (pixel[d] <= int64_t{map.last[d + 1]} + map.upper[d]) break;
      pixel[d] = map.lower[d];
      if (d == 1) ++pixel[2];
    }
  }
}

Execute find_tensor_copy(const Opcode& o) {
  if (!o.has("mbarrier::complete_tx::bytes"))
    return [](Thread& t, const Instruction& i) {
      copy_box(t, i, map_of(t, i), t.read<uint32_t>(i.a), false);
    };
  if (o.has("im2col"))
    return [](Thread& t, const Instruction& i) {
      const TensorMap map = map_of(t, i);
      const int64_t bytes = int64_t{map.box[0]} * map.box[1] * map.element_bytes;
      for_targets(t, i, [&](uint64_t to, uint64_t barrier) {
        copy_pixels(t, i, map, to);
        arrive(t, barrier, 0, -bytes);
      });
    };
  return [](Thread& t, const Instruction& i) {
    const TensorMap map = map_of(t, i);
    for_targets(t, i, [&](uint64_t to, uint64_t barrier) {
      copy_box(t, i, map, to, true);
      arrive(t, barrier, 0, -box_bytes(map));
    });
  };
}

Execute find_bulk_copy(const Opcode& o) {
  if (o.has("prefetch")) return [](Thread&, const Instruction&) {};
  if (o.has("reduce")) return nullptr;
  if (o.has("tensor")) return find_tensor_copy(o);
  if (o.has("mbarrier::complete_tx::bytes"))
    return [](Thread& t, const Instruction& i) {
      const auto bytes = t.read<uint32_t>(i.c);
      std::memcpy(t.cta->shared_at(t.read<uint32_t>(i.a), bytes),
                  reinterpret_cast<const void*>(t.registers[i.b]), bytes);
      arrive(t, t.read<uint32_t>(i.e), 0, -int64_t{bytes});
    };
  return [](Thread& t, const Instruction& i) {
    const auto bytes = t.read<uint32_t>(i.c);
    std::memcpy(reinterpret_cast<void*>(t.registers[i.a]),
                t.cta->shared_at(t.read<uint32_t>(i.b), bytes), bytes);
  };
}

Execute find_copy(const Opcode& o) {
  if (o.has("commit_group") || o.has("wait_group") || o.has("wait_all"))
    return [](Thread&, const Instruction&) {};
  if (o.has("bulk")) return find_bulk_copy(o);
  if (o.has("mbarrier")) {  // for the copies before it, which have come
    if (!o.has("noinc")) return [](Thread&, const Instruction&) {};
    return [](Thread& t, const Instruction& i) { arrive(t, address_of(t, i), 1, 0); };
  }
  return [](Thread& t, const Instruction& i) {
    const size_t bytes = t.read<uint32_t>(i.c);
    size_t read = i.e < 0 ? bytes : t.read<uint32_t>(i.e);  // and zeros behind them
    if (i.ignores >= 0 && t.holds(i.ignores)) read = 0;
    std::byte* const to = t.cta->shared_at(address_of(t, i), bytes);
    const uint64_t from = t.registers[i.b] + static_cast<uint64_t>(i.b_immediate);
    if (reinterpret_cast<uint64_t>(to) % bytes != 0 || from % bytes != 0)
      fail(*t.cta, "a misaligned copy", &i);
    if (read > 0) std::memcpy(to, reinterpret_cast<const void*>(from), read);
    std::memset(to + read, 0, bytes - read);
  };
}

template <class T>
Execute store_and_arrive() {
  return [](Thread& t, const Instruction& i) {
    const size_t count = i.list.empty() ? 1 : i.list.size();
    std::byte* const to = t.cta->shared_at(address_of(t, i), count * sizeof(T));
    for (size_t k = 0; k < count; ++k)
      std::memcpy(to + k * sizeof(T), t.registers + (i.list.empty() ? i.b : i.list[k]), sizeof(T));
    arrive(t, t.read<uint32_t>(i.e), 0, -static_cast<int64_t>(count * sizeof(T)));
  };
}

/// Addresses in the cluster.
Execute find_mapped(const Opcode& o) {
  if (o.name() == "getctarank")
    return [](Thread& t, const Instruction& i) {
      const uint32_t window = t.read<uint32_t>(i.a) >> 24;
      t.write(i.to, window == 0 ? t.cta->rank : window - 1);
    };
  if (o.name() != "mapa") return nullptr;
  if (o.type() == "u32")
    return [](Thread& t, const Instruction& i) {
      t.write(i.to, static_cast<uint32_t>(of_rank(t.read<uint32_t>(i.a), t.read<uint32_t>(i.b))));
    };
  return [](Thread& t, const Instruction& i) {
    const Cta& other = *t.cta->cluster[t.read<uint32_t>(i.b)];
    t.registers[i.to] = t.registers[i.a] - reinterpret_cast<uint64_t>(t.cta->shared) +
                        reinterpret_cast<uint64_t>(other.shared);
  };
}

}  // namespace

Execute find_asynchronous(const Opcode& o) {
  if (o.name() == "mbarrier") return find_barrier(o);
  if (o.name() == "cp") return find_copy(o);
  if (o.name() == "st" && o.has("async"))
    return o.type().ends_with("64") ? store_and_arrive<uint64_t>() : store_and_arrive<uint32_t>();
  return find_mapped(o);
}

}  // namespace bs::emulator
