#pragma once
/** @file Measures what no GPU tells of itself, in about a second. */
#include <bs/kernels/cuda/gpu/gpu_model.h>
#include <bs/lib/cuda/jit.h>
#include <bs/lib/device.h>

#include <vector>

namespace bs::cuda {

/** @brief The kernels that measure take. Public for the tests, which compile them. */
std::vector<jit::Source> measuring_sources();

/** @brief What the device says, and that alone. */
Gpu asked_gpu(Device device);
GpuKey gpu_key(Device device);

/** @brief Measures, whatever the table and the cache say. A number that cannot be measured, for
 *  want of memory or for any other reason, is 0. Safe while a stream of this thread is captured. */
Measured measure_gpu(Device device);

/** @brief The GPU by the table; else as it was kept; else as it is measured now, which is kept. The
 *  stand-in for the host. */
GpuModel model_of(Device device);

}  // namespace bs::cuda
