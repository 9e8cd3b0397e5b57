#pragma once
/** @file Device memory from CUDA's stream-ordered pools. */
#include <bs/lib/memory.h>

#include <string>

namespace bs::cuda {

/** @brief The pool of `device`: cudaMallocAsync memory that is kept rather than given back. Before
 *  it fails it waits for the device and gives back what it has cached. Memory that was
 *  freed while its stream was captured comes back then, and by trim(). */
MemoryResource& device_pool(Device device);

/** @brief See bs::next_stream. */
Stream pooled_stream(Device device);

/** @brief What comes next on `stream` waits for all that is on `other`, and no host does. */
void follow(Stream stream, Stream other) noexcept;

/** @brief Where the memory of a device is, in bytes. */
struct MemoryShares {
  int64_t total = 0;
  int64_t free = 0;
  int64_t tensors = 0;   ///< held by tensors of this process
  int64_t reserved = 0;  ///< by this process' pool, that of tensors included
};
/** @brief What an OutOfMemory says: how much was wanted, who has the rest, what may help. */
std::string out_of_memory_text(Device device, size_t bytes, const MemoryShares& shares);

}  // namespace bs::cuda
