#pragma once
/** @file Memory that the library keeps for itself, counted as that of tensors is. */
#include <bs/lib/memory.h>

namespace bs {

/** @brief Bytes of a given resource, whichever one tensors use: memory that outlives a call must
 * not come from one that was set for a while. Limits and statistics count it. free_bytes takes it
 * back.
 *  @throws OutOfMemory as allocate_bytes does. */
void* allocate_counted(size_t bytes, MemoryResource& from, Stream stream);

}  // namespace bs
