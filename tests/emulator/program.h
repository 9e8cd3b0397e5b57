#pragma once
/** @file A kernel as the emulator runs it: instructions that functions carry out on the registers
 * of a thread. Registers have 64 bits, whatever a kernel declares; constants lie in some of them.
 */
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

namespace bs::emulator {

struct Cta;
struct Instruction;
struct Program;
struct Thread;

inline constexpr int warp_size = 32;
/** @brief The threads of a warp by their lanes; null where there is none. */
using Warp = std::array<Thread*, warp_size>;

/** @brief What an instruction does to one thread. */
using Execute = void (*)(Thread&, const Instruction&);
/** @brief What one does that the lanes of `mask` carry out together. */
using ExecuteWarp = void (*)(const Warp&, uint32_t mask, const Instruction&);

/** @brief Whom a thread waits for at an instruction. */
enum class Kind : uint8_t { plain, warp, barrier, cluster_arrive, cluster_wait, end };

/** @brief What a barrier of a CTA gives to those who wait there. */
enum class BarrierUse : uint8_t { wait, arrive, count, all, any };

/** @brief Operands are numbers of registers, -1 where there is none. */
struct Instruction {
  Kind kind = Kind::plain;
  Execute execute = nullptr;
  ExecuteWarp execute_warp = nullptr;
  int to = -1, also_to = -1;
  int a = -1, b = -1, c = -1, e = -1;
  int guard = -1;    ///< a predicate
  int ignores = -1;  ///< a predicate: a copy writes zeros
  bool guard_is_not = false, a_is_not = false, c_is_not = false;
  BarrierUse use = BarrierUse::wait;
  int target = -1;                         ///< of a branch, an index of Program::code
  int64_t immediate = 0, b_immediate = 0;  ///< an offset; that of a second address
  std::vector<int> list = {};              ///< elements of a vector, or matrices, or targets
  std::string text = {};

  int elements() const { return static_cast<int>(list.size()); }
};

/** @brief What it takes to begin a kernel, besides its parameters. */
struct Program {
  std::string name;
  std::vector<Instruction> code;
  int registers = 0;
  std::vector<std::pair<int, uint64_t>> constants;  ///< registers and their values
  size_t static_shared = 0;                         ///< bytes
  size_t dynamic_begins = 0;                        ///< an address in shared memory
  size_t local_bytes = 0;                           ///< of a thread
};

/** @brief Shared memory begins here: what lies before is the system's. */
inline constexpr size_t shared_begins = 1024;

enum class State : uint8_t { runs, at_warp, at_barrier, at_cluster, ended };

struct Thread {
  uint64_t* registers = nullptr;
  Cta* cta = nullptr;
  int next = 0;  ///< an index of Program::code
  State state = State::runs;
  std::array<uint32_t, 3> index{};
  uint32_t lane = 0;
  bool carry = false;
  const Instruction* waits_at = nullptr;
  uint32_t barrier = 0, expected = 0;  ///< where it waits, and for how many threads: 0 for all
  std::byte* local = nullptr;
  uint64_t steps = 0;

  template <class T>
  T read(int number) const {
    T value;
    std::memcpy(&value, registers + number, sizeof value);
    return value;
  }
  /** @brief The bits above T are cleared. */
  template <class T>
  void write(int number, T value) {
    uint64_t bits = 0;
    std::memcpy(&bits, &value, sizeof value);
    registers[number] = bits;
  }
  /** @brief A predicate, or its contrary. */
  bool holds(int number, bool is_not = false) const { return (registers[number] != 0) != is_not; }
};

/** @brief A block of threads, and the cluster that it is in. */
struct Cta {
  const Program* program = nullptr;
  std::vector<Thread> threads;
  std::vector<uint64_t> registers;
  std::vector<std::byte> local;
  std::byte* shared = nullptr;  ///< from address 0 on, aligned to 1024 bytes
  size_t shared_end = 0;
  std::byte* parameters = nullptr;
  std::array<uint32_t, 3> index{}, grid{}, block{}, cluster_shape{1, 1, 1};
  uint32_t dynamic_shared = 0, rank = 0;  ///< rank: of the cluster
  std::span<Cta* const> cluster;
  uint32_t alive = 0;
  std::array<uint32_t, 16> arrived{};  ///< at barriers, without waiting
  uint32_t arrived_at_cluster = 0;

  /** @brief Where an address of shared memory lies. Its upper 8 bits are 0, or one more than the
   *  rank of another CTA. Ends the program where it lies outside. */
  std::byte* shared_at(uint64_t address, size_t bytes) const;
};

/** @brief Ends the program with what a kernel did wrong, and at which instruction. */
[[noreturn]] void fail(const Cta& cta, const std::string& text, const Instruction* at = nullptr);

}  // namespace bs::emulator
