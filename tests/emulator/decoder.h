#pragma once
/** @file From the text of a kernel to instructions. */
#include <bs/tests/emulator/module.h>

namespace bs::emulator {

/** @throws std::runtime_error for what the emulator does not know. */
Program decoded(const Kernel& kernel);

}  // namespace bs::emulator
