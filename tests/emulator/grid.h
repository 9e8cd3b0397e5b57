#pragma once
/** @file Runs the threads of a grid in turns, on one core of the host. */
#include <bs/tests/emulator/module.h>

#include <array>
#include <cstddef>

namespace bs::emulator {

struct Launch {
  std::array<uint32_t, 3> grid{1, 1, 1}, block{1, 1, 1}, cluster{1, 1, 1};
  uint32_t dynamic_shared = 0;  ///< bytes
};

/** @brief Returns when all threads have ended. Each runs until it waits for others; warps, CTAs and
 *  clusters follow one another as far as they can, so the order is the same each time. Ends the
 *  program where nobody can go on, or where a kernel reads or writes what it must not. */
void run_grid(Kernel& kernel, const Launch& launch, const std::byte* parameters);

}  // namespace bs::emulator
