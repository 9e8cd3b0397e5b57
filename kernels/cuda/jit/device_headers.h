#pragma once
/** @file The device headers as text, for kernels compiled at run time. The build writes the source
 *  (cmake/embed.cmake). */
#include <bs/lib/cuda/jit.h>

#include <span>

namespace bs::cuda {

/** @brief Everything in kernels/cuda/device as `bs/kernels/cuda/device/ROOM/x.cuh`, and the random
 * function of lib. */
std::span<const jit::Header> device_headers();

}  // namespace bs::cuda
