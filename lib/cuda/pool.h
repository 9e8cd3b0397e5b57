#pragma once
/** @file Device memory from CUDA's stream-ordered pools. */
#include <bs/lib/memory.h>

namespace bs::cuda {

/** @brief The pool of `device`: cudaMallocAsync memory that is kept rather than given back. */
MemoryResource& device_pool(Device device);

}  // namespace bs::cuda
