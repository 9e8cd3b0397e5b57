#pragma once
/** @file How much of a GPU a kernel takes, asked of CUDA once: a question takes longer than many a
 *  kernel does. */
#include <bs/lib/device.h>

#include <cstddef>

namespace bs::cuda {

/** @brief Lets a kernel that nvcc compiled have so much dynamic shared memory on `device`, which is
 *  the current one. Ask for the most that it ever wants. */
void allow_shared_memory(const void* kernel, size_t bytes, Device device);

/** @brief Blocks of `threads` that a multiprocessor of `device`, which is the current one, has room
 *  for at a time. @throws CudaError unless so much dynamic shared memory is allowed. */
int blocks_that_fit(const void* kernel, int threads, size_t shared, Device device);

/** @brief Clusters of `cluster` such blocks that the device has room for at a time; 0 where it has
 *  none. Lets the kernel have clusters of more than 8. */
int clusters_that_fit(const void* kernel, int cluster, int threads, size_t shared, Device device);

}  // namespace bs::cuda
