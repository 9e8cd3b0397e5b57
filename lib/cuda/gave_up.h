#pragma once
/** @file Kernels whose CTAs wait for each other, and what they say when that takes too long. */
#include <bs/lib/device.h>

#include <string>

namespace bs::cuda {

/** @brief What such a kernel has as `bs_gave_up`: a word of the host, and what to write there. */
struct GaveUp {
  unsigned* word;
  unsigned number;
};

/** @brief A number for a kernel on a device, and the word that all kernels share. */
GaveUp gave_up_report(const std::string& kernel, Device device);
/** @brief The kernel that wrote its number, with its device; empty as long as none has. */
std::string kernel_that_gave_up();
/** @brief Throws a CudaError that names that kernel, if there is one. Called where a launch has
 * failed, of which CUDA says no more, and where the host has waited. A kernel that gives up may
 * also have gone on, with results that are wrong. */
void check_gave_up();

}  // namespace bs::cuda
