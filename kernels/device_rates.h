#pragma once
/** @file How fast a device is at most, for what is compared with that. */
#include <bs/kernels/dispatch.h>
#include <bs/lib/profiler.h>

namespace bs {

/** @brief What `device` reaches in large copies and dense products. A CPU is measured at the first
 *  call, with as many threads as the caller's loops have; that takes a tenth of a second. Of a GPU
 *  it is what plans are made with: known, or measured once and kept beside the compiled kernels.
 *  Its rate in f64 is not known. f32 is meant as exact, not as TF32. For
 *  ProfilerTableOptions::rates. */
DeviceRates device_rates(Device device);

BS_BACKENDS(void device_rates(DeviceRates& rates, Stream stream))

}  // namespace bs
