#pragma once
/** @file Which instructions the CPU kernels use. */

namespace bs {

/** @brief The value of -march of the CPU kernels that run here: that of the build, such as
 *  "native". Or it is the level that a package chose for this processor, such as "x86-64-v3". The
 *  environment variable BS_CPU_LEVEL asks for a lower level before the program begins. */
const char* cpu_level();

}  // namespace bs
