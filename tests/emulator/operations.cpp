#include <bs/tests/emulator/operations.h>

#include <array>
#include <span>

namespace bs::emulator {

namespace {

/// What only orders memory, hints, or waits for what is done at once here.
constexpr std::array without_effect = {"membar",         "fence",      "nanosleep",
                                       "prefetch",       "prefetchu",  "discard",
                                       "griddepcontrol", "setmaxnreg", "applypriority"};

Execute find_move(const Opcode& opcode) {
  const std::string_view name = opcode.name();
  if (name == "mov")
    return [](Thread& t, const Instruction& i) { t.registers[i.to] = t.registers[i.a]; };
  if (name == "selp")
    return [](Thread& t, const Instruction& i) {
      t.registers[i.to] = t.registers[t.holds(i.c, i.c_is_not) ? i.a : i.b];
    };
  if (name == "createpolicy") return [](Thread& t, const Instruction& i) { t.registers[i.to] = 0; };
  if (name == "trap") return [](Thread& t, const Instruction& i) { fail(*t.cta, "a trap", &i); };
  return nullptr;
}

}  // namespace

Opcode::Opcode(std::string_view text) {
  for (size_t from = 0; from <= text.size();) {
    const size_t end = std::min(text.size(), text.find('.', from));
    words.push_back(text.substr(from, end - from));
    from = end + 1;
  }
}

Execute find_operation(const Opcode& opcode, Instruction& instruction) {
  if (std::find(without_effect.begin(), without_effect.end(), opcode.name()) !=
      without_effect.end())
    return [](Thread&, const Instruction&) {};
  for (const auto find : {find_move, find_arithmetic, find_bit_operation, find_asynchronous})
    if (const Execute found = find(opcode)) return found;
  for (const auto find : {find_comparison, find_conversion})
    if (const Execute found = find(opcode, instruction)) return found;
  return find_memory_operation(opcode, instruction);
}

namespace {

using Get = uint64_t (*)(const Thread&);

struct NamedRegister {
  const char* name;
  Get get;
};

uint32_t lane_bit(const Thread& t) { return 1U << t.lane; }
uint64_t clock_of(const Thread& t) { return t.steps; }

constexpr NamedRegister special_registers[] = {
    {"%tid.x", [](const Thread& t) -> uint64_t { return t.index[0]; }},
    {"%tid.y", [](const Thread& t) -> uint64_t { return t.index[1]; }},
    {"%tid.z", [](const Thread& t) -> uint64_t { return t.index[2]; }},
    {"%ntid.x", [](const Thread& t) -> uint64_t { return t.cta->block[0]; }},
    {"%ntid.y", [](const Thread& t) -> uint64_t { return t.cta->block[1]; }},
    {"%ntid.z", [](const Thread& t) -> uint64_t { return t.cta->block[2]; }},
    {"%ctaid.x", [](const Thread& t) -> uint64_t { return t.cta->index[0]; }},
    {"%ctaid.y", [](const Thread& t) -> uint64_t { return t.cta->index[1]; }},
    {"%ctaid.z", [](const Thread& t) -> uint64_t { return t.cta->index[2]; }},
    {"%nctaid.x", [](const Thread& t) -> uint64_t { return t.cta->grid[0]; }},
    {"%nctaid.y", [](const Thread& t) -> uint64_t { return t.cta->grid[1]; }},
    {"%nctaid.z", [](const Thread& t) -> uint64_t { return t.cta->grid[2]; }},
    {"%laneid", [](const Thread& t) -> uint64_t { return t.lane; }},
    {"%warpid",
     [](const Thread& t) { return static_cast<uint64_t>(&t - t.cta->threads.data()) / warp_size; }},
    {"%lanemask_eq", [](const Thread& t) -> uint64_t { return lane_bit(t); }},
    {"%lanemask_lt", [](const Thread& t) -> uint64_t { return lane_bit(t) - 1; }},
    {"%lanemask_le", [](const Thread& t) -> uint64_t { return (lane_bit(t) - 1) | lane_bit(t); }},
    {"%lanemask_ge", [](const Thread& t) -> uint64_t { return ~(lane_bit(t) - 1); }},
    {"%lanemask_gt",
     [](const Thread& t) -> uint64_t { return ~((lane_bit(t) - 1) | lane_bit(t)); }},
    {"%dynamic_smem_size", [](const Thread& t) -> uint64_t { return t.cta->dynamic_shared; }},
    {"%total_smem_size",
     [](const Thread& t) -> uint64_t { return t.cta->shared_end - shared_begins; }},
    {"%cluster_ctarank", [](const Thread& t) -> uint64_t { return t.cta->rank; }},
    {"%cluster_nctarank", [](const Thread& t) -> uint64_t { return t.cta->cluster.size(); }},
    {"%cluster_ctaid.x",
     [](const Thread& t) -> uint64_t { return t.cta->rank % t.cta->cluster_shape[0]; }},
    {"%cluster_nctaid.x", [](const Thread& t) -> uint64_t { return t.cta->cluster_shape[0]; }},
    {"%clusterid.x",
     [](const Thread& t) -> uint64_t { return t.cta->index[0] / t.cta->cluster_shape[0]; }},
    {"%nclusterid.x",
     [](const Thread& t) -> uint64_t { return t.cta->grid[0] / t.cta->cluster_shape[0]; }},
    {"%smid", [](const Thread& t) -> uint64_t { return t.cta->index[0] % 132; }},
    {"%nsmid", [](const Thread&) -> uint64_t { return 132; }},
    {"%globaltimer", clock_of},
    {"%clock64", clock_of},
    {"%clock", clock_of},
};

}  // namespace

SpecialRegister find_special_register(std::string_view name) {
  const auto read = [](Thread& t, const Instruction& i) {
    t.registers[i.to] = special_registers[i.immediate].get(t);
  };
  for (size_t i = 0; i < std::size(special_registers); ++i)
    if (special_registers[i].name == name) return {read, static_cast<int64_t>(i)};
  return {};
}

}  // namespace bs::emulator
