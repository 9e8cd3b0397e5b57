#pragma once
/** @file Device memory from CUDA's stream-ordered pools. */
#include <bs/lib/memory.h>

namespace bs::cuda {

/** @brief The pool of `device`: cudaMallocAsync memory that is kept rather than given back. Before
 *  it fails it waits for the device and gives back what it has cached. Memory that was
 *  freed while its stream was captured comes back then, and by trim(). */
MemoryResource& device_pool(Device device);

/** @brief Bytes that tensors may take now: what no process has, and what the pool has cached; all
 *  there is where CUDA doesn't tell. Takes some microseconds. */
int64_t free_memory(Device device);

/** @brief Sets bytes of device memory on `stream`. */
void set_bytes(void* pointer, unsigned char value, size_t bytes, Stream stream);

/** @brief See bs::next_stream. */
Stream pooled_stream(Device device);

/** @brief Whether what is queued on `stream` goes into a graph; not where the stream is gone. */
bool goes_into_graph(Stream stream) noexcept;

/** @brief What comes next on `stream` waits for all that is on `other`, and no host does. */
void follow(Stream stream, Stream other) noexcept;

}  // namespace bs::cuda
