#pragma once
/** @file A kernel that does nothing, to time what a launch takes. */
#include <bs/lib/stream.h>

#include <cstddef>

namespace bs::bench {

/** @brief Launches it with so many bytes of parameters: 8 or 1024. */
void launch_empty(size_t bytes, Stream stream);
/** @brief The same as extended launch, for which no configuration is pushed and popped. */
void launch_empty_extended(size_t bytes, Stream stream);

}  // namespace bs::bench
